//! What the guide says: its pages, and programs that were written from them alone.

mod pages;
mod users;
