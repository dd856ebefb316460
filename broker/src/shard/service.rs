//! The one entry from connections into what a shard owns.
//!
//! A connection that panics is closed and counted; owned state that panics is half changed, so the process aborts and starts
//! again from its logs. This file is the border: every request passes [`guarded`] on its way in, on the owner's own thread
//! as well as through the mesh.
//!
//! [`ShardRequest`] and [`ShardReply`] are the whole list of what crosses: owned, `Send`, one message per owner shard and
//! request, never one per partition.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_lite::future::poll_once;
use walser_storage::runtime::channel::Closed;

use super::mesh::{Mesh, PendingReply, ReplyTo};
use super::placement::ShardId;
use super::runtime::{self, ShardRuntime};
use super::{Image, Shard};

/// What one executor asks of another.
#[derive(Debug)]
pub enum ShardRequest {
    /// Are you there?
    Ping,
    /// A new metadata image; answered when the shard has made itself match it.
    ApplyImage(Image),
}

/// The answers, one for each request.
#[derive(Debug)]
pub enum ShardReply {
    Pong,
    ImageApplied,
}

/// The mesh as the broker uses it.
pub type ShardMesh = Mesh<ShardRequest, ShardReply, ShardRuntime>;

/// Carries a request out on the shard that owns what it is about.
async fn serve(shard: Rc<Shard>, request: ShardRequest) -> ShardReply {
    match request {
        ShardRequest::Ping => ShardReply::Pong,
        ShardRequest::ApplyImage(image) => {
            shard.set_image(image);
            ShardReply::ImageApplied
        }
    }
}

/// A request whose place in the owner's order is fixed.
pub enum Dispatched {
    /// Answered at once.
    Done(ShardReply),
    /// On this shard, not finished.
    Local(Pin<Box<dyn Future<Output = ShardReply>>>),
    /// On its way.
    Remote(PendingReply<ShardReply>),
}

impl Dispatched {
    /// The reply; [`Closed`] when the owner has stopped.
    pub async fn reply(self) -> Result<ShardReply, Closed> {
        match self {
            Self::Done(reply) => Ok(reply),
            Self::Local(serving) => Ok(serving.await),
            Self::Remote(pending) => pending.await,
        }
    }
}

impl Shard {
    /// Hands a request to the shard that owns what it is about. When this returns, nothing that is handed over later
    /// overtakes it; the reply is awaited separately. A local request that was begun is finished even if its reply is not
    /// awaited to the end.
    pub async fn dispatch(self: &Rc<Self>, owner: ShardId, request: ShardRequest) -> Dispatched {
        if owner != self.id {
            return Dispatched::Remote(self.mesh.request(owner, request).await);
        }
        let mut serving: Pin<Box<dyn Future<Output = ShardReply>>> = Box::pin(guarded(serve(Rc::clone(self), request)));
        match poll_once(&mut serving).await {
            Some(reply) => Dispatched::Done(reply),
            None => Dispatched::Local(finish_alone(serving)),
        }
    }
}

/// Runs `serving` as a task of its own, so that a connection that goes away does not cut it in the middle.
fn finish_alone(serving: Pin<Box<dyn Future<Output = ShardReply>>>) -> Pin<Box<dyn Future<Output = ShardReply>>> {
    let (sender, receiver) = walser_storage::runtime::channel::oneshot();
    runtime::spawn(async move {
        // Who asked may be gone.
        drop(sender.send(serving.await));
    });
    Box::pin(async move { receiver.await.expect("the serving task answers, or the process ends") })
}

/// Serves what comes through the mesh; begun in order of arrival, finished in any.
pub fn serve_remote(
    shard: &Rc<Shard>,
    request: ShardRequest,
    reply_to: ReplyTo<ShardRequest, ShardReply, ShardRuntime>,
) {
    let mut serving: Pin<Box<dyn Future<Output = ShardReply>>> = Box::pin(guarded(serve(Rc::clone(shard), request)));
    let waker = std::task::Waker::noop();
    // The first step happens here and now, which is what keeps the order; the task polls again with its own waker.
    match serving.as_mut().poll(&mut Context::from_waker(waker)) {
        Poll::Ready(reply) => reply_to.send(reply),
        Poll::Pending => runtime::spawn(async move { reply_to.send(serving.await) }),
    }
}

struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("owned state panicked under a request: aborting");
            std::process::abort();
        }
    }
}

/// Wraps a future that changes owned state: a panic inside aborts the process instead of unwinding into a connection.
pub fn guarded<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |context| {
        let _guard = AbortOnUnwind;
        future.as_mut().poll(context)
    })
}
