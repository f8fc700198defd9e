"""Ray itself: started, joined, secured and ended, and the copy of a program that its processes import."""
