//! A list whose members know their places, so that one can leave from the middle.

/// No place.
const NONE: usize = usize::MAX;

/// Linked members in order, and others that have left the order and whose owners have yet to look.
#[derive(Debug)]
pub(super) struct List<T> {
    nodes: Vec<Node<T>>,
    front: usize,
    back: usize,
    /// The first of the places that nobody has, each with the next one in `after`.
    vacant: usize,
    linked: usize,
    members: usize,
}

#[derive(Debug)]
struct Node<T> {
    /// `None` for a place that nobody has.
    value: Option<T>,
    before: usize,
    after: usize,
    linked: bool,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            front: NONE,
            back: NONE,
            vacant: NONE,
            linked: 0,
            members: 0,
        }
    }
}

impl<T> List<T> {
    /// How many stand in order.
    pub(super) const fn len(&self) -> usize {
        self.linked
    }

    /// Whether there is nobody, in order or not.
    pub(super) const fn is_deserted(&self) -> bool {
        self.members == 0
    }

    pub(super) fn front(&self) -> Option<usize> {
        (self.front != NONE).then_some(self.front)
    }

    pub(super) fn back(&self) -> Option<usize> {
        (self.back != NONE).then_some(self.back)
    }

    pub(super) fn push_back(&mut self, value: T) -> usize {
        let at = self.settle(value, self.back, NONE);
        match self.nodes.get_mut(self.back) {
            Some(last) => last.after = at,
            None => self.front = at,
        }
        self.back = at;
        at
    }

    pub(super) fn push_front(&mut self, value: T) -> usize {
        let at = self.settle(value, NONE, self.front);
        match self.nodes.get_mut(self.front) {
            Some(first) => first.before = at,
            None => self.back = at,
        }
        self.front = at;
        at
    }

    /// A place for `value`.
    fn settle(&mut self, value: T, before: usize, after: usize) -> usize {
        let node = Node {
            value: Some(value),
            before,
            after,
            linked: true,
        };
        self.linked += 1;
        self.members += 1;
        let at = self.vacant;
        if let Some(vacant) = self.nodes.get_mut(at) {
            self.vacant = vacant.after;
            *vacant = node;
            at
        } else {
            self.nodes.push(node);
            self.nodes.len() - 1
        }
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.nodes.get(at)?.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.nodes.get_mut(at)?.value.as_mut()
    }

    /// How many stand before `at`.
    pub(super) fn rank(&self, at: usize) -> usize {
        let mut rank = 0;
        let mut before = self.nodes[at].before;
        while before != NONE {
            rank += 1;
            before = self.nodes[before].before;
        }
        rank
    }

    /// Takes `at` out of the order; it keeps its place.
    pub(super) fn unlink(&mut self, at: usize) {
        let Node { before, after, .. } = self.nodes[at];
        if !std::mem::take(&mut self.nodes[at].linked) {
            return;
        }
        match self.nodes.get_mut(before) {
            Some(node) => node.after = after,
            None => self.front = after,
        }
        match self.nodes.get_mut(after) {
            Some(node) => node.before = before,
            None => self.back = before,
        }
        self.linked -= 1;
    }

    /// Takes `at` out, and its place is free for another.
    pub(super) fn take(&mut self, at: usize) -> Option<T> {
        let value = self.nodes.get_mut(at)?.value.take()?;
        self.unlink(at);
        self.members -= 1;
        self.nodes[at].after = self.vacant;
        self.vacant = at;
        Some(value)
    }
}
