//! A linked list in an arena, which removes from the middle by index.

/// No node.
const NIL: u32 = u32::MAX;

/// Linked nodes in order, and unlinked nodes whose owners have not taken the value yet.
#[derive(Debug)]
pub(crate) struct List<T> {
    nodes: Vec<Node<T>>,
    front: u32,
    back: u32,
    /// The first free node. Each free node has the next one in `after`.
    free_head: u32,
    linked: usize,
}

#[derive(Debug)]
struct Node<T> {
    /// `None` for a free node.
    value: Option<T>,
    before: u32,
    /// The node's own index if it is not linked.
    after: u32,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            front: NIL,
            back: NIL,
            free_head: NIL,
            linked: 0,
        }
    }
}

impl<T> List<T> {
    /// The number of linked nodes.
    pub(crate) const fn len(&self) -> usize {
        self.linked
    }

    pub(crate) fn front(&self) -> Option<u32> {
        (self.front != NIL).then_some(self.front)
    }

    pub(crate) fn back(&self) -> Option<u32> {
        (self.back != NIL).then_some(self.back)
    }

    /// The linked node after a linked one.
    #[cfg_attr(
        not(feature = "cas"),
        allow(dead_code, reason = "permits of a fleet use it")
    )]
    pub(crate) fn after(&self, at: u32) -> Option<u32> {
        let after = self.nodes.get(at as usize)?.after;
        (after != NIL).then_some(after)
    }

    pub(crate) fn push_back(&mut self, value: T) -> u32 {
        let at = self.insert_node(value, self.back, NIL);
        match self.nodes.get_mut(self.back as usize) {
            Some(last) => last.after = at,
            None => self.front = at,
        }
        self.back = at;
        at
    }

    pub(crate) fn push_front(&mut self, value: T) -> u32 {
        let at = self.insert_node(value, NIL, self.front);
        match self.nodes.get_mut(self.front as usize) {
            Some(first) => first.before = at,
            None => self.back = at,
        }
        self.front = at;
        at
    }

    /// Stores a linked node and returns its index.
    fn insert_node(&mut self, value: T, before: u32, after: u32) -> u32 {
        let node = Node {
            value: Some(value),
            before,
            after,
        };
        self.linked += 1;
        let at = self.free_head;
        if let Some(free) = self.nodes.get_mut(at as usize) {
            self.free_head = free.after;
            *free = node;
            at
        } else {
            self.nodes.push(node);
            // 2^32 nodes do not fit in memory.
            u32::try_from(self.nodes.len() - 1).unwrap_or(NIL)
        }
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.nodes.get_mut(at as usize)?.value.as_mut()
    }

    /// Unlinks `at`. The node keeps its index and value.
    pub(crate) fn unlink(&mut self, at: u32) {
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

    /// Removes `at` and frees its node.
    pub(crate) fn take(&mut self, at: u32) -> Option<T> {
        let value = self.nodes.get_mut(at as usize)?.value.take()?;
        self.unlink(at);
        self.nodes[at as usize].after = self.free_head;
        self.free_head = at;
        Some(value)
    }
}
