"""The server of bundles: Open Inference Protocol v2 over HTTP. No torch; needs the extra `serve`."""
