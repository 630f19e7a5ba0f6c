"""What a loop function says, as a tree: its nodes, their types, how they are gone through and made."""
