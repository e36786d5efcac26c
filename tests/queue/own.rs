//! An algorithm of a user that queues requests.
