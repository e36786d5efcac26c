// A stub: the body of this target, random operations on every algorithm, is still to be written.
