"""Judging: attacks, certificates and probes on one case, and audits that run them."""
