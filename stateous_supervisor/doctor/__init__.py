"""What `doctor` looks at on a build box, and what it makes of it (A-56).

`box`, `network` and `plane` are the doors that gather facts; `facts` are the values; `findings` judges them and knows
no world. `cli/doctor.py` puts them together.
"""
