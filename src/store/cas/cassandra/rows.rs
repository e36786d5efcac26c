//! What a statement returned. Columns are found by their names: their number and order differ
//! between Cassandra and ScyllaDB.

use scylla::{
    response::query_result::QueryResult,
    value::{CqlValue, Row},
};

use crate::error::StoreError;
use crate::store::cas::{Loaded, Swapped, Value, Version};

/// The first row, with the names of its columns.
struct Named {
    names: Vec<String>,
    row: Option<Row>,
}

impl Named {
    fn read(result: QueryResult) -> Result<Self, StoreError> {
        let rows = result
            .into_rows_result()
            .map_err(|error| unreadable(&error))?;
        let names = rows
            .column_specs()
            .iter()
            .map(|spec| spec.name().to_owned());
        Ok(Self {
            names: names.collect(),
            row: rows.maybe_first_row().map_err(|error| unreadable(&error))?,
        })
    }

    fn take(&mut self, name: &str) -> Option<CqlValue> {
        let column = self.names.iter().position(|known| known == name)?;
        self.row.as_mut()?.columns.get_mut(column)?.take()
    }

    /// The value, which is absent if one of its columns is.
    fn value(&mut self) -> Option<Value> {
        match (self.take("version"), self.take("value")) {
            (Some(CqlValue::BigInt(version)), Some(CqlValue::Blob(bytes))) => {
                let version = u64::from_ne_bytes(version.to_ne_bytes());
                Some(Value::new(Version::from_u64(version), bytes))
            }
            _ => None,
        }
    }
}

pub(super) fn loaded(result: QueryResult) -> Result<Loaded, StoreError> {
    Ok(Loaded::new(Named::read(result)?.value()))
}

pub(super) fn swapped(result: QueryResult) -> Result<Swapped, StoreError> {
    let mut row = Named::read(result)?;
    match row.take("[applied]") {
        Some(CqlValue::Boolean(true)) => Ok(Swapped::Done(None)),
        Some(CqlValue::Boolean(false)) => Ok(Swapped::Conflict(Some(Loaded::new(row.value())))),
        _ => Err(unreadable(&"no column [applied]")),
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> StoreError {
    StoreError::new(format!("Cassandra: a reply cannot be read: {error}"), false)
}
