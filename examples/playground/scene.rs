//! What the routes of a run stand for: policies, machines of a fleet, or servers that are restarted.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::Deserialize;
use tower_throttle::{
    ConfigError, Local, StoreError,
    algorithm::share_of,
    store::{
        Fallback,
        cas::{CasStore, Loaded, MemoryStore, Program, Runs, Swapped, Value},
        fleet::FleetLimiter,
    },
};

use crate::{lane::Lane, policy::Policy, route::Route, setting::Fault};

const MACHINES: u64 = 3;

/// What the routes stand for. All but the first one take only the first policy.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scene {
    /// Each policy, on the same requests.
    #[default]
    Policies,
    /// One process, and three machines behind a balancer, which share budgets of units that are free.
    Leased,
    /// The same, with budgets of what refills in the coming interval too.
    Synced,
    /// Servers on the same requests: one runs on, one saves its state before a restart, and one does not.
    Restart,
}

/// What a user of the page makes happen.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Event {
    /// The store of the fleet stops.
    Outage,
    Recovery,
    Restart,
}

/// The routes of a run.
pub(crate) struct Lanes {
    scene: Scene,
    policy: Policy,
    named: Vec<(String, Arc<Lane>)>,
    is_down: Arc<AtomicBool>,
    balanced: AtomicU64,
}

impl Lanes {
    /// `policies` are one or more.
    pub(crate) fn new(scene: Scene, policies: &[Policy]) -> Result<Self, Vec<Fault>> {
        let policy = &policies[0];
        let is_down = Arc::<AtomicBool>::default();
        let store = Store {
            values: MemoryStore::new(),
            is_down: Arc::clone(&is_down),
        };
        let named = match scene {
            Scene::Policies => policies
                .iter()
                .map(|policy| (policy.line().to_owned(), Route::local(policy)))
                .collect(),
            Scene::Leased => fleet::<false>(policy, &store)?,
            Scene::Synced => fleet::<true>(policy, &store)?,
            Scene::Restart => ["Not restarted", "State saved and loaded", "State not saved"]
                .map(|name| (name.to_owned(), Route::local(policy)))
                .into(),
        };
        Ok(Self {
            scene,
            policy: policy.clone(),
            named: named
                .into_iter()
                .map(|(name, route)| (name, Lane::new(route)))
                .collect(),
            is_down,
            balanced: AtomicU64::new(0),
        })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(name, _)| &**name)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.named.iter().map(|(_, lane)| lane)
    }

    /// The routes that get the next request: all of them, or that of one process and of one machine.
    pub(crate) fn next(&self) -> impl Iterator<Item = &Arc<Lane>> {
        let machine = matches!(self.scene, Scene::Leased | Scene::Synced).then(|| {
            let request = self.balanced.fetch_add(1, Ordering::Relaxed);
            // By a hash: machines in turn would get the clients in turn.
            usize::try_from((request.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % MACHINES)
                .unwrap_or_default()
                + 1
        });
        let gets = move |at: usize| machine.is_none_or(|machine| at == 0 || at == machine);
        self.all()
            .enumerate()
            .filter(move |(at, _)| gets(*at))
            .map(|(_, lane)| lane)
    }

    pub(crate) fn happens(&self, event: Event) -> io::Result<()> {
        match event {
            Event::Outage => self.is_down.store(true, Ordering::Relaxed),
            Event::Recovery => self.is_down.store(false, Ordering::Relaxed),
            Event::Restart if self.scene == Scene::Restart => {
                for (at, lane) in self.all().enumerate().skip(1) {
                    let route = Route::local(&self.policy);
                    if at == 1 {
                        route.load(&lane.route())?;
                    }
                    lane.replace(route);
                }
            }
            Event::Restart => {}
        }
        Ok(())
    }
}

/// One process to compare with, and the machines.
fn fleet<const AHEAD: bool>(
    policy: &Policy,
    store: &Store,
) -> Result<Vec<(String, Route)>, Vec<Fault>> {
    let refused = |error: ConfigError| {
        vec![Fault::new(
            "policies[0]",
            format!("Policy 1 in a fleet: {error}"),
        )]
    };
    if policy.queue().is_some() {
        let message = "Policy 1 in a fleet: only a limit in this process has a queue; remove it";
        return Err(vec![Fault::new("policies[0]", message)]);
    }
    let mut named = vec![(
        "One process with all requests".to_owned(),
        Route::local(policy),
    )];
    for machine in 1..=MACHINES {
        let algorithm = policy.algorithm();
        let limiter =
            FleetLimiter::<_, _, AHEAD>::new(store.clone(), "playground", algorithm.clone());
        let limiter = limiter.map_err(refused)?;
        // While the store is down each machine admits its share.
        let share = share_of(algorithm, MACHINES).map_err(refused)?;
        let route = Route::remote(Fallback::new(limiter, Local::new(share)));
        named.push((format!("Machine {machine}"), route));
    }
    Ok(named)
}

/// A store in this process that can be stopped.
#[derive(Clone, Debug)]
struct Store {
    values: MemoryStore,
    is_down: Arc<AtomicBool>,
}

impl Store {
    fn up(&self) -> Result<&MemoryStore, StoreError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(StoreError::new("the store was stopped", true));
        }
        Ok(&self.values)
    }
}

impl CasStore for Store {
    const NAME: &'static str = "playground";
    const RUNS: Runs = <MemoryStore>::RUNS;

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        self.up()?.load(key).await
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        self.up()?.swap(key, expected, new, ttl).await
    }

    async fn run<P: Program>(&self, program: &P) -> Result<P::Reply, StoreError> {
        self.up()?.run(program).await
    }
}
