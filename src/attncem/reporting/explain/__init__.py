"""One image explained."""
