"""Options of everything: one strict, frozen class per kind."""
