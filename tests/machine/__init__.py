"""The services under a systemd of their own, in a virtual machine: `make machine`."""
