//! The prepared statements of a connection.

use tokio_postgres::{
    Client, Error, Statement,
    types::{ToSql, Type},
};

use crate::sync::{Mutex, lock};

/// The prepared statements of one connection.
#[derive(Default)]
pub(super) struct Statements(Mutex<Vec<(String, Statement)>>);

/// One parameter of a statement.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// How many statements a connection keeps: those of two tables.
const MAX_STATEMENTS: usize = 12;

impl Statements {
    /// The statement for this text. Calls that need it at the same time may each prepare it.
    pub(super) async fn get(
        &self,
        client: &Client,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Statement, Error> {
        let known = {
            let known = lock(&self.0);
            let found = known.iter().find(|(text, _)| text == sql);
            found.map(|(_, statement)| statement.clone())
        };
        if let Some(statement) = known {
            return Ok(statement);
        }
        let types: Vec<Type> = parameters.iter().map(|(_, of)| of.clone()).collect();
        let statement = client.prepare_typed(sql, &types).await?;
        let replaced = {
            let mut known = lock(&self.0);
            let is_full = known.len() >= MAX_STATEMENTS;
            let replaced = is_full.then(|| known.remove(0));
            if known.iter().all(|(text, _)| text != sql) {
                known.push((sql.to_owned(), statement.clone()));
            }
            replaced
        };
        // Outside the lock: dropping a statement sends a message.
        drop(replaced);
        Ok(statement)
    }

    /// Forgets all: the server no longer has them.
    pub(super) fn clear(&self) {
        let forgotten = std::mem::take(&mut *lock(&self.0));
        drop(forgotten);
    }
}
