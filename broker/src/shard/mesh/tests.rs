//! The mesh in the simulator: two and three nodes on one executor.

use walser_storage::runtime::Instant;
use walser_storage::runtime::simulated::SimulatedRuntime;

use super::*;

type TestMesh = Mesh<u32, u32, SimulatedRuntime>;

/// Nodes that answer every request with twice its number.
fn nodes(runtime: &SimulatedRuntime, count: u16) -> Vec<Rc<TestMesh>> {
    links(count)
        .into_iter()
        .map(|links| {
            let mesh = Mesh::new(links, runtime.clone());
            let receiving =
                Rc::clone(&mesh).run(|request, reply_to: ReplyTo<_, _, _>| reply_to.send(request * 2), || ());
            runtime.spawn(receiving);
            runtime.spawn(Rc::clone(&mesh).run_guard());
            mesh
        })
        .collect()
}

#[test]
fn full_lanes_in_both_directions_drain() {
    // Rule: many times what a lane and its outbox hold, both ways at once, is answered; each reply finds its request.
    const REQUESTS: u32 = 20_000;
    let runtime = SimulatedRuntime::new(1);
    let nodes = nodes(&runtime, 3);
    runtime.block_on(async {
        let mut answered = Vec::new();
        for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 0)] {
            let (mesh, to) = (Rc::clone(&nodes[from]), nodes[to].own());
            let (sender, receiver) = oneshot();
            runtime.spawn(async move {
                let mut pending = Vec::new();
                for number in 0..REQUESTS {
                    pending.push(mesh.request(to, number).await);
                }
                for (number, reply) in (0..REQUESTS).zip(pending) {
                    assert_eq!(reply.await, Ok(number * 2));
                }
                sender.send(()).unwrap();
            });
            answered.push(receiver);
        }
        for receiver in answered {
            receiver.await.unwrap();
        }
    });
}

#[test]
fn requests_of_one_sender_arrive_in_order() {
    // Rule: the order in which `request` returns is the order of arrival, whatever had to wait for room.
    let runtime = SimulatedRuntime::new(2);
    let mut links = links::<u32, u32>(2);
    let (receiver, sender) = (links.pop().unwrap(), links.pop().unwrap());
    let seen = Rc::new(RefCell::new(Vec::new()));
    let receiver = Mesh::new(receiver, runtime.clone());
    let log = Rc::clone(&seen);
    runtime.spawn(Rc::clone(&receiver).run(
        move |request, reply_to| {
            log.borrow_mut().push(request);
            reply_to.send(0);
        },
        || (),
    ));
    let sender = Mesh::new(sender, runtime.clone());
    runtime.spawn(Rc::clone(&sender).run(|_, _| (), || ()));
    runtime.block_on(async {
        let mut last = None;
        for number in 0..5000 {
            last = Some(sender.request(receiver.own(), number).await);
        }
        last.unwrap().await.unwrap();
    });
    assert!(seen.borrow().iter().copied().eq(0..5000));
}

#[test]
fn a_lost_wake_up_is_found_by_the_guard() {
    // Rule: a message whose receiver was not woken is taken about a millisecond later, and counted.
    let runtime = SimulatedRuntime::new(3);
    let nodes = nodes(&runtime, 2);
    runtime.run_until(Instant::from_start(Duration::from_millis(10))).unwrap();
    // As if the bell had been rung before and the wake-up got lost.
    nodes[0].doorbells[1].rung.store(true, Ordering::SeqCst);
    let began = runtime.now();
    runtime.block_on(async {
        let reply = nodes[0].request(nodes[1].own(), 21).await;
        assert_eq!(reply.await, Ok(42));
    });
    assert!(runtime.now().saturating_since(began) < GUARD_WAIT * 3);
    assert_eq!(nodes[0].rescues(), 1);
}

#[test]
fn nothing_ticks_when_everything_is_taken() {
    // Rule: a request that is parked at its owner keeps no guard going, nor does a mesh without messages.
    let runtime = SimulatedRuntime::new(4);
    let mut links = links::<u32, u32>(2);
    let owner = Mesh::new(links.pop().unwrap(), runtime.clone());
    let asker = Mesh::new(links.pop().unwrap(), runtime.clone());
    let parked = Rc::new(RefCell::new(Vec::new()));
    let park = Rc::clone(&parked);
    runtime.spawn(Rc::clone(&owner).run(move |_, reply_to| park.borrow_mut().push(reply_to), || ()));
    runtime.spawn(Rc::clone(&asker).run(|_, _| (), || ()));
    runtime.spawn(Rc::clone(&owner).run_guard());
    runtime.spawn(Rc::clone(&asker).run_guard());
    let reply = runtime.block_on(asker.request(owner.own(), 1));
    runtime.run_until_idle().unwrap();
    let idle_since = runtime.now();
    assert_eq!(parked.borrow().len(), 1);
    runtime.run_until(idle_since.saturating_add(Duration::from_secs(3600))).unwrap();
    parked.borrow_mut().pop().unwrap().send(5);
    assert_eq!(runtime.block_on(reply), Ok(5));
    assert_eq!(asker.rescues() + owner.rescues(), 0);
}

#[test]
fn a_dropped_reply_frees_its_call() {
    // Rule: who asks and goes away leaves nothing behind, and later calls are not confused.
    let runtime = SimulatedRuntime::new(5);
    let nodes = nodes(&runtime, 2);
    runtime.block_on(async {
        for number in 0..100 {
            drop(nodes[0].request(nodes[1].own(), number).await);
            let reply = nodes[0].request(nodes[1].own(), number).await;
            assert_eq!(reply.await, Ok(number * 2));
        }
    });
    assert!(nodes[0].calls.borrow().slots.len() <= 4);
}
