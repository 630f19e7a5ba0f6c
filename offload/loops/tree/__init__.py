"""The tree of a loop function: its nodes, their types, and how passes walk and make them."""
