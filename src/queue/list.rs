//! A list whose members know their places, so that one can leave from the middle.

/// No place.
const NIL: u32 = u32::MAX;

/// Linked members in order, and others that have left the order and whose owners have yet to look.
#[derive(Debug)]
pub(super) struct List<T> {
    nodes: Vec<Node<T>>,
    front: u32,
    back: u32,
    /// The first of the places that nobody has, each with the next one in `after`.
    vacant: u32,
    linked: usize,
}

#[derive(Debug)]
struct Node<T> {
    /// `None` for a place that nobody has.
    value: Option<T>,
    before: u32,
    /// Itself, if it is not linked.
    after: u32,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            front: NIL,
            back: NIL,
            vacant: NIL,
            linked: 0,
        }
    }
}

impl<T> List<T> {
    /// How many stand in order.
    pub(super) const fn len(&self) -> usize {
        self.linked
    }

    pub(super) fn front(&self) -> Option<u32> {
        (self.front != NIL).then_some(self.front)
    }

    pub(super) fn push_back(&mut self, value: T) -> u32 {
        let at = self.settle(value, self.back, NIL);
        match self.nodes.get_mut(self.back as usize) {
            Some(last) => last.after = at,
            None => self.front = at,
        }
        self.back = at;
        at
    }

    /// A place for `value`.
    fn settle(&mut self, value: T, before: u32, after: u32) -> u32 {
        let node = Node {
            value: Some(value),
            before,
            after,
        };
        self.linked += 1;
        let at = self.vacant;
        if let Some(vacant) = self.nodes.get_mut(at as usize) {
            self.vacant = vacant.after;
            *vacant = node;
            at
        } else {
            self.nodes.push(node);
            // So many nodes are more memory than there is.
            u32::try_from(self.nodes.len() - 1).unwrap_or(NIL)
        }
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.nodes.get_mut(at as usize)?.value.as_mut()
    }

    /// Takes `at` out of the order; it keeps its place.
    pub(super) fn unlink(&mut self, at: u32) {
        let Node { before, after, .. } = self.nodes[at as usize];
        if after == at {
            return;
        }
        self.nodes[at as usize].after = at;
        match self.nodes.get_mut(before as usize) {
            Some(node) => node.after = after,
            None => self.front = after,
        }
        match self.nodes.get_mut(after as usize) {
            Some(node) => node.before = before,
            None => self.back = before,
        }
        self.linked -= 1;
    }

    /// Takes `at` out, and its place is free for another.
    pub(super) fn take(&mut self, at: u32) -> Option<T> {
        let value = self.nodes.get_mut(at as usize)?.value.take()?;
        self.unlink(at);
        self.nodes[at as usize].after = self.vacant;
        self.vacant = at;
        Some(value)
    }
}
