"""`stateous-supervisor demo`: two tickets through a control plane and a supervisor, shown as they go.

Both run as programs of their own, because this room never imports the control plane.
"""
