"""What ties the agent to systemd: the notify protocol and the unit file. Both work where systemd is not."""
