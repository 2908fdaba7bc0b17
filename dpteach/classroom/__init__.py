"""What only the book needs: exercises that answer, recorded numbers, figures, kept results."""
