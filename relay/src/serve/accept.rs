// SPDX-License-Identifier: GPL-2.0
//! The task that accepts the connections of one listening socket.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::connection;
use super::shared::{Role, Service, Shared, Slot};
use super::stats::Live;
use crate::log::say;
use crate::net::{Accepted, BACKLOG, Bound, sys};

/// One permit for each connection to an admin socket. Further ones wait in the accept queue.
static FOR_ADMIN: Semaphore = Semaphore::const_new(64);

/// Spawns the task, which accepts at `bound` until `stop` is cancelled.
pub fn start(
    bound: Arc<Bound>,
    role: Role,
    shared: Arc<Shared>,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        tokio::select! {
            () = accept(&bound, &role, &shared) => {}
            () = stop.cancelled() => rest(&bound, &role, &shared).await,
        }
    })
}

fn present(slot: &Slot) -> Arc<Service> {
    slot.borrow().clone()
}

/// Runs `wait` with the present service. If a reload replaces the service meanwhile, begins anew with
/// the new one, whose limits may be others. Returns the service that the result is for.
async fn with_present<T>(slot: &Slot, wait: impl AsyncFn(Arc<Service>) -> T) -> (Arc<Service>, T) {
    let mut slot = slot.subscribe();
    loop {
        let service = slot.borrow_and_update().clone();
        tokio::select! {
            // The result of a wait that is over must not be lost.
            biased;
            result = wait(service.clone()) => return (service, result),
            Ok(()) = slot.changed() => {}
        }
    }
}

async fn room(service: Arc<Service>) {
    service.stats.below(service.spec.max_connections).await;
}

async fn enter(service: Arc<Service>) -> Live {
    service.stats.enter(service.spec.max_connections).await
}

async fn accept(bound: &Bound, role: &Role, shared: &Arc<Shared>) {
    match role {
        Role::Admin => loop {
            let Ok(permit) = FOR_ADMIN.acquire().await else {
                return;
            };
            let accepted = next(bound).await;
            let serve = (shared.admin)(accepted.stream, shared.clone());
            tokio::spawn(async move {
                serve.await;
                drop(permit);
            });
        },
        Role::Serve(slot) => loop {
            // At the limit, further connections wait in the socket's accept queue.
            let Ok(permit) = shared.slots.clone().acquire_owned().await else {
                return;
            };
            let service = present(slot);
            if let Some(rate) = &service.rate {
                rate.take(1).await.spend(1);
            }
            with_present(slot, room).await;
            let accepted = next(bound).await;
            // A reload may have replaced the service while this task waited.
            begin(slot, shared, accepted, permit);
        },
    }
}

/// Serves the connections that wait in the accept queue, because closing the socket would reset
/// them. Stops at the limit of connections. If another process goes on with the socket, that one
/// serves those for which this listener has no room.
async fn rest(bound: &Bound, role: &Role, shared: &Arc<Shared>) {
    let Role::Serve(slot) = role else { return };
    let handed_over = shared.handed_over.load(Ordering::Acquire);
    for _ in 0..shared.most.min(BACKLOG as usize) {
        let service = present(slot);
        if handed_over && !service.stats.is_below(service.spec.max_connections) {
            return;
        }
        let Ok(permit) = shared.slots.clone().try_acquire_owned() else {
            return;
        };
        match timeout(Duration::ZERO, bound.accept()).await {
            Ok(Ok(accepted)) => begin(slot, shared, accepted, permit),
            _ => return,
        }
    }
}

/// Spawns a task that serves one connection.
fn begin(slot: &Arc<Slot>, shared: &Arc<Shared>, accepted: Accepted, permit: OwnedSemaphorePermit) {
    let (shared, service) = (shared.clone(), present(slot));
    match service.stats.try_enter(service.spec.max_connections) {
        Some(live) => {
            tokio::spawn(connection::serve(service, shared, accepted, (permit, live)));
        }
        // The listener is at its limit: another of its sockets was faster, or this one is closing.
        None => {
            let slot = slot.clone();
            tokio::spawn(async move {
                let (service, live) = with_present(&slot, enter).await;
                connection::serve(service, shared, accepted, (permit, live)).await;
            });
        }
    }
}

/// Returns the next connection. While descriptors or memory are short, tries again.
async fn next(bound: &Bound) -> Accepted {
    let mut said = false;
    loop {
        match bound.accept().await {
            Ok(accepted) => return accepted,
            // The client has reset the connection before this call.
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => tokio::task::yield_now().await,
            // The network or a firewall has failed this connection. Others may be fine.
            Err(e) if !sys::is_shortage(&e) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(e) => {
                if !said {
                    let at = bound.address().map_or(String::new(), |a| a.to_string());
                    say(format!("{at}: accept: {e}: waiting"));
                }
                said = true;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
