"""Networks, inversion decoders and the split model."""
