//! Starts a real Cassandra on free loopback ports. It is stopped when its handle is dropped.
//!
//! Its program comes from Maven Central, by `tests/cassandra/pom.xml`, and is kept in the target
//! folder. It needs Java 17 and Maven.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

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
pub(crate) struct CassandraServer {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl CassandraServer {
    /// A server that tests share. Each uses a table of its own.
    pub(crate) fn shared() -> Arc<Self> {
        static SERVER: Mutex<Weak<CassandraServer>> = Mutex::new(Weak::new());
        let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    pub(crate) fn start() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-throttle-cassandra-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Another process may take a port before the server does.
        for _ in 0..5 {
            let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
            let ports = free
                .each_ref()
                .map(|free| free.local_addr().expect("its address").port());
            drop(free);
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(folder.join("triggers")).expect("a folder for the server");
            write_settings(&folder, ports);
            if let Some(process) = launch(&folder, true) {
                return Self {
                    process,
                    port: ports[0],
                    folder,
                };
            }
        }
        panic!("no Cassandra has started");
    }

    pub(crate) fn node(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn builder(&self) -> SessionBuilder {
        SessionBuilder::new()
            .known_node(self.node())
            .user("cassandra", "cassandra")
    }

    /// A session for the test itself.
    pub(crate) async fn session(&self) -> Session {
        let session = Box::pin(self.builder().build()).await;
        session.expect("a server that responds")
    }

    /// Kills the server, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("a child process");
        self.process.wait().expect("a child process");
    }

    /// Restarts the server on the same ports after [`kill`](Self::kill).
    pub(crate) fn restart(&mut self) {
        self.process = launch(&self.folder, false).expect("the ports are still free");
    }

    /// Sends a signal to the server: `STOP` suspends it and `CONT` resumes it.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.process.id().to_string())
            .status();
        assert!(sent.expect("kill is installed").success());
    }
}

impl Drop for CassandraServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
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
fn launch(folder: &Path, is_new: bool) -> Option<Child> {
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
    let mut process = Command::new("java")
        .args([
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
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("Java is installed");
    let output = BufReader::new(process.stdout.take().expect("it was piped"));
    let mut lines = output.lines();
    // A new server makes its first role beside its start: either line may be the last.
    let mut awaited = vec!["Startup complete"];
    if is_new {
        awaited.push("Created default superuser role");
    }
    let mut log = Vec::new();
    let is_ready = lines.by_ref().map_while(Result::ok).any(|line| {
        awaited.retain(|text| !line.contains(text));
        log.push(line);
        awaited.is_empty()
    });
    if is_ready {
        // Keep reading the log, so that the pipe never fills.
        std::thread::spawn(move || lines.for_each(drop));
        return Some(process);
    }
    eprintln!(
        "Cassandra has not started: {:#?}",
        log.split_off(log.len().saturating_sub(20))
    );
    let _ = process.kill();
    let _ = process.wait();
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
        let poms = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let pom = poms
            .map(|path| path.join("tests/cassandra/pom.xml"))
            .find(|pom| pom.exists());
        if !done.exists() {
            let fetched = Command::new("mvn")
                .args(["--batch-mode", "--quiet", "dependency:copy-dependencies"])
                .arg("--file")
                .arg(pom.expect("the file that names the program"))
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
