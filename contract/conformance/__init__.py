"""The promises of a control plane as a black-box suite: it knows a URL and the wire, nothing of what is behind it."""
