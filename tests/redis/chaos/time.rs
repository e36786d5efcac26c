//! Jumps of the server's clock by an hour.
//!
//! Debian's libfaketime does not work with the allocator of its redis-server. A few lines of C do
//! instead: they are loaded before the C library and add an offset to its clock.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Evidence, Row, Stage};
use crate::reached;
use crate::redis_server::{RedisServer, Setup};

/// The offset in seconds is the first eight bytes of a file that is mapped into memory.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *offset;

__attribute__((constructor)) static void find_offset(void) {
    int file = open(getenv("CLOCK_OFFSET"), O_RDONLY);
    void *map = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) offset = map;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec real;
    (void)zone;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &real);
    now->tv_sec = real.tv_sec + (offset ? *offset : 0);
    now->tv_usec = real.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told) {
    struct timeval now;
    gettimeofday(&now, 0);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
"#;

/// An hour back, an hour forward, and so on.
const OFFSETS: [i64; 6] = [-3_600, 0, 3_600, 0, -7_200, 0];

pub(super) fn jumps(stage: Stage) -> Row {
    let folder = std::env::temp_dir().join(format!("tower-throttle-{}-time", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (library, offset) = (compiled(&folder), folder.join("offset"));
    // The file is mapped, so it is never truncated.
    let file = fs::File::create(&offset).expect("a file");
    file.write_all_at(&0_i64.to_ne_bytes(), 0).expect("a file");
    let server = Setup::default()
        .variable("LD_PRELOAD", &library.display().to_string())
        .variable("CLOCK_OFFSET", &offset.display().to_string())
        .start();
    let mut fleet = stage.on(&server);
    let mut jumped = 0;
    for next in OFFSETS {
        let before = seconds(&server);
        file.write_all_at(&next.to_ne_bytes(), 0).expect("the file");
        reached("time jumps", || seconds(&server).abs_diff(before) > 3_000);
        jumped += 1;
        fleet.lasts_for(fleet.span() / 4);
    }
    fleet.ends();
    let evidence = Evidence::new(&server, jumped, "jumps of an hour");
    let row = Row::of("time jumps", fleet, &evidence);
    let _ = fs::remove_dir_all(folder);
    row
}

fn seconds(server: &RedisServer) -> u64 {
    let (seconds, _): (u64, u64) = redis::cmd("TIME")
        .query(&mut server.connection())
        .expect("the time");
    seconds
}

fn compiled(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    fs::write(&source, SHIM).expect("a file");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .stdin(Stdio::null())
        .status();
    assert!(status.expect("a C compiler is installed").success());
    library
}
