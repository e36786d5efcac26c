//! The stream in tonic.

use tonic::transport::server::Connected;

use super::connection::Connection;

/// `Server::serve_with_incoming` takes connections, and requests have the info of the stream inside.
impl<S: Connected> Connected for Connection<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> S::ConnectInfo {
        self.get_ref().connect_info()
    }
}
