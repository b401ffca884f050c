"""From a YAML file and overrides to validated options, with help and error messages from the schema."""
