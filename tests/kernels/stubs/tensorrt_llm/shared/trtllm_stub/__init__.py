"""What both layouts of the stand-in have in common."""
