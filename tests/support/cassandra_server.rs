//! Starts a real Cassandra on free loopback ports. It is stopped when its handle is dropped.
//!
//! Its program comes from Maven Central, by `tests/servers/cassandra/pom.xml`, and is kept in the target
//! folder. It needs Java 17 and Maven.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, OnceLock, Weak},
};

use crate::folder::Folder;
use crate::program::{Program, on_free_ports, shared};
use scylla::client::{session::Session, session_builder::SessionBuilder};

/// What Cassandra reads of the JDK, as its own start script allows it.
const EXPORTS: &str = "
    java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/java.lang.ref
    java.base/sun.nio.ch java.management.rmi/com.sun.jmx.remote.internal.rmi
    java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.sql/java.sql jdk.unsupported/sun.misc
    jdk.compiler/com.sun.tools.javac.file jdk.attach/sun.tools.attach";
const OPENS: &str = "
    java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect java.base/java.io
    java.base/java.nio java.base/java.util java.base/java.util.concurrent
    java.base/java.util.concurrent.atomic java.base/sun.nio.ch java.base/jdk.internal.loader
    java.base/jdk.internal.ref java.base/jdk.internal.reflect java.base/jdk.internal.math
    java.base/jdk.internal.module java.base/jdk.internal.util.jar
    jdk.management/com.sun.management.internal jdk.compiler/com.sun.tools.javac";

/// A running server, with the role `cassandra` and the password `cassandra`.
#[derive(Debug)]
pub struct CassandraServer {
    program: Program,
    port: u16,
    folder: Folder,
}

impl CassandraServer {
    /// A server that tests share. Each uses a table of its own.
    pub fn shared() -> Arc<Self> {
        static SERVER: Mutex<Weak<CassandraServer>> = Mutex::new(Weak::new());
        shared(&SERVER, Self::start)
    }

    pub fn start() -> Self {
        let folder = Folder::new("cassandra");
        let (program, [port, _]) = on_free_ports(|ports| {
            let _ = fs::remove_dir_all(&*folder);
            fs::create_dir_all(folder.join("triggers")).expect("a folder for the server");
            write_settings(&folder, ports);
            launch(&folder, true)
        });
        Self {
            program,
            port,
            folder,
        }
    }

    pub fn node(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn builder(&self) -> SessionBuilder {
        SessionBuilder::new()
            .known_node(self.node())
            .user("cassandra", "cassandra")
    }

    /// A session for the test itself.
    pub async fn session(&self) -> Session {
        let session = Box::pin(self.builder().build()).await;
        session.expect("a server that responds")
    }

    /// Kills the server, as a crash does.
    pub fn kill(&mut self) {
        self.program.kill();
    }

    /// Restarts the server on the same ports after [`kill`](Self::kill).
    pub fn restart(&mut self) {
        self.program = launch(&self.folder, false).expect("the ports are still free");
    }

    /// Sends a signal to the server: `STOP` suspends it and `CONT` resumes it.
    pub fn signal(&self, name: &str) {
        self.program.signal(name);
    }
}

/// The settings that have no default, and few others.
fn write_settings(folder: &Path, [native, storage]: [u16; 2]) {
    let data = folder.display();
    let settings = format!(
        "cluster_name: test\n\
         partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
         endpoint_snitch: SimpleSnitch\n\
         num_tokens: 1\n\
         commitlog_sync: batch\n\
         authenticator: PasswordAuthenticator\n\
         authorizer: CassandraAuthorizer\n\
         role_manager: CassandraRoleManager\n\
         permissions_validity: 0ms\n\
         auto_snapshot: false\n\
         listen_address: 127.0.0.1\n\
         rpc_address: 127.0.0.1\n\
         storage_port: {storage}\n\
         native_transport_port: {native}\n\
         start_native_transport: true\n\
         seed_provider:\n\
         - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n\
         \x20 parameters:\n\
         \x20 - seeds: \"127.0.0.1:{storage}\"\n\
         data_file_directories: [\"{data}/data\"]\n\
         commitlog_directory: \"{data}/commitlog\"\n\
         saved_caches_directory: \"{data}/saved_caches\"\n\
         hints_directory: \"{data}/hints\"\n\
         cdc_raw_directory: \"{data}/cdc\"\n"
    );
    fs::write(folder.join("cassandra.yaml"), settings).expect("a file for the settings");
    let log = "<configuration><appender name=\"OUT\" class=\"ch.qos.logback.core.ConsoleAppender\">\
               <encoder><pattern>%level %msg%n</pattern></encoder></appender>\
               <root level=\"INFO\"><appender-ref ref=\"OUT\"/></root></configuration>";
    fs::write(folder.join("logback.xml"), log).expect("a file for the settings of the log");
}

/// Starts a server and waits until it is ready. Returns `None` if it ends instead.
fn launch(folder: &Path, is_new: bool) -> Option<Program> {
    let jars = jars();
    let files = fs::read_dir(jars).expect("the program of the server");
    let agent = files
        .map(|file| file.expect("a file").path())
        .find(|path| path.to_string_lossy().contains("/jamm-"))
        .expect("jamm is among the dependencies");
    let agent = agent.display();
    let folder_text = folder.display();
    let options = |name: &str, list: &str| {
        let packages = list.split_whitespace();
        packages
            .flat_map(|package| [name.to_owned(), format!("{package}=ALL-UNNAMED")])
            .collect::<Vec<_>>()
    };
    let mut java = Command::new("java");
    java.args([
        "-Xms256m",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
    ])
    .arg(format!("-javaagent:{agent}"))
    .arg(format!("-Xbootclasspath/a:{agent}"))
    .arg("-Djdk.attach.allowAttachSelf=true")
    .arg("-Dio.netty.tryReflectionSetAccessible=true")
    .args(options("--add-exports", EXPORTS))
    .args(options("--add-opens", OPENS))
    .arg(format!(
        "-Dlogback.configurationFile={folder_text}/logback.xml"
    ))
    .arg(format!(
        "-Dcassandra.config=file:{folder_text}/cassandra.yaml"
    ))
    .arg(format!("-Dcassandra.storagedir={folder_text}"))
    .arg(format!("-Dcassandra.triggers_dir={folder_text}/triggers"))
    .args([
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        "-Dcassandra.superuser_setup_delay_ms=0",
        "-Dcassandra.ring_delay_ms=1",
        "-Dcassandra.initial_token=0",
        "-Dcassandra-foreground=yes",
    ])
    .arg("-cp")
    .arg(jars.join("*"))
    .arg("org.apache.cassandra.service.CassandraDaemon")
    .current_dir(folder)
    .stdout(Stdio::piped())
    .stderr(Stdio::null());
    // A new server makes its first role beside its start: either line may be the last.
    let mut awaited = vec!["Startup complete"];
    if is_new {
        awaited.push("Created default superuser role");
    }
    let mut log = Vec::new();
    let program = Program::start(&mut java, |line| {
        awaited.retain(|text| !line.contains(text));
        log.push(line);
        awaited.is_empty()
    });
    if program.is_some() {
        return program;
    }
    eprintln!(
        "Cassandra has not started: {:#?}",
        log.split_off(log.len().saturating_sub(20))
    );
    None
}

/// The folder with the server's program. Fetched once.
fn jars() -> &'static Path {
    static JARS: OnceLock<PathBuf> = OnceLock::new();
    JARS.get_or_init(|| {
        // Cargo tells tests the folder. Another program is `target/PROFILE/NAME`; a target folder that
        // was copied may have no tag.
        let program = std::env::current_exe().expect("the path of this program");
        let target = || {
            let mut folders = program.ancestors();
            let folder = folders.find(|path| path.join("CACHEDIR.TAG").exists());
            folder.expect("a target folder").join("tmp")
        };
        let tmp = option_env!("CARGO_TARGET_TMPDIR").map_or_else(target, PathBuf::from);
        let folder = tmp.join("cassandra");
        let done = folder.join("fetched");
        let pom = crate::root().join("tests/servers/cassandra/pom.xml");
        if !done.exists() {
            let fetched = Command::new("mvn")
                .args(["--batch-mode", "--quiet", "dependency:copy-dependencies"])
                .arg("--file")
                .arg(pom)
                .arg(format!("-DoutputDirectory={}", folder.display()))
                .stdin(Stdio::null())
                .output()
                .expect("Maven is installed");
            assert!(fetched.status.success(), "{fetched:?}");
            fs::write(&done, "").expect("a file in the target folder");
        }
        folder
    })
}
