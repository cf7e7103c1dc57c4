"""Every shipped part, one folder per axis, and the table of published names. A method is one small file of parts."""
