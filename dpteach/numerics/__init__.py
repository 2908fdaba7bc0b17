"""The engine room: quadrature, roots, lattices. Skip it on first reading."""
