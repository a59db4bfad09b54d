"""The agent's real loops on a clock that jumps, against a model control plane that loses, repeats and breaks what passes."""
