//! The arrival of request bodies: time limits, and limits on the memory of messages under way.
//!
//! A message that has begun must be complete within [`PATIENCE`], as must the first message of a call. Large
//! messages take their memory from one store for the whole daemon, of which one user may have an eighth. A
//! message without memory waits until others are done. Small messages count only against the share of their
//! user. Messages are separated by gRPC's framing: one byte, the length, the message.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use crate::channel::MAX_MESSAGE;
use crate::listen::{Busy, Complaint, Peer};
use crate::refusal;
use crate::shares::Shares;

/// Time for a message from its first byte to its last, and for the first message of a call to begin and end.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Length in bytes beyond which messages take memory from the common store.
const SMALL: usize = 64 << 10;
/// Unit of the store, in bytes.
const UNIT: usize = 1 << 10;
/// Length of the header before every message, in bytes.
const HEADER: usize = 5;
/// Number of users who could fill the store; a share is never less than the largest message.
const SHARES: usize = 8;

/// A layer that limits the bodies of a server's requests.
#[derive(Clone, Debug)]
pub struct Arrival {
    room: Arc<Semaphore>,
    /// Each user's share of the memory, in units of [`UNIT`] bytes.
    users: Shares,
    patience: Duration,
    late: Arc<Complaint>,
}

impl Arrival {
    /// Returns a layer with `room` bytes for large messages under way.
    pub fn new(room: usize) -> Arrival {
        Arrival {
            room: Arc::new(Semaphore::new(room / UNIT)),
            users: Shares::new((room / SHARES).max(MAX_MESSAGE).div_ceil(UNIT)),
            patience: PATIENCE,
            late: Arc::default(),
        }
    }

    /// Returns the memory that a message of this length needs: in its user's share, and in the common store
    /// if the message is larger than [`SMALL`].
    fn wanted(&self, user: Option<u32>, length: usize) -> Wanted {
        Wanted {
            own: user.map(|uid| self.users.of(uid)),
            common: (length > SMALL).then(|| Arc::clone(&self.room)),
            units: u32::try_from(length.min(MAX_MESSAGE).div_ceil(UNIT)).unwrap_or(u32::MAX),
        }
    }

    /// Returns this layer with another time limit for messages.
    pub fn with_patience(self, patience: Duration) -> Arrival {
        Arrival { patience, ..self }
    }
}

impl<S> Layer<S> for Arrival {
    type Service = Watched<S>;

    fn layer(&self, inner: S) -> Watched<S> {
        Watched { inner, arrival: self.clone() }
    }
}

/// A service whose request bodies are limited.
#[derive(Clone, Debug)]
pub struct Watched<S> {
    inner: S,
    arrival: Arrival,
}

impl<S> Service<http::Request<Body>> for Watched<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Answering>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let busy = request.extensions().get::<Peer>().map(Peer::busy);
        let arrival = self.arrival.clone();
        let peer = request.extensions().get::<Peer>().cloned();
        let user = move || peer.as_ref().and_then(Peer::user);
        let answer = self.inner.call(request.map(|body| Body::new(Arriving::new(body, arrival, user))));
        Box::pin(async move { Ok(answer.await?.map(|inner| Answering { inner, _busy: busy })) })
    }
}

/// The body of an answer, which keeps its connection from counting as silent until it has been sent.
#[derive(Debug)]
pub struct Answering {
    inner: Body,
    _busy: Option<Busy>,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of a request.
struct Arriving {
    inner: Body,
    arrival: Arrival,
    messages: Messages,
    /// True while the first message, or the rest of a message, is expected.
    expecting: bool,
    /// Runs while expected data do not come.
    deadline: Option<Pin<Box<Sleep>>>,
    /// The memory of the message under way.
    room: Option<Room>,
    /// A received frame that waits for memory.
    waiting: Option<(Frame<Bytes>, Waiting)>,
    /// Returns the user that the client has proved to be. Called when memory is needed, because the proof
    /// comes after the headers of a request.
    user: Box<dyn Fn() -> Option<u32> + Send>,
}

/// The memory of one message.
struct Room {
    /// The part from the share of the message's user.
    _own: Option<OwnedSemaphorePermit>,
    /// The part from the common store, for a large message.
    _common: Option<OwnedSemaphorePermit>,
}

/// The memory that a message needs.
struct Wanted {
    /// The share of its user, if the user is known.
    own: Option<Arc<Semaphore>>,
    /// The common store, for a large message.
    common: Option<Arc<Semaphore>>,
    units: u32,
}

impl Wanted {
    /// Returns the memory if it is available now.
    fn take(&self) -> Option<Room> {
        let take = |store: &Option<Arc<Semaphore>>| {
            let store = store.as_ref().map(Arc::clone);
            store.map(|store| store.try_acquire_many_owned(self.units)).transpose().ok()
        };
        Some(Room { _own: take(&self.own)?, _common: take(&self.common)? })
    }

    /// Waits for the memory: first in the user's share, so that a user over the share does not block the
    /// common store. `None` only if a store is closed, which does not happen.
    async fn wait(self) -> Option<Room> {
        let own = match self.own {
            Some(own) => Some(own.acquire_many_owned(self.units).await.ok()?),
            None => None,
        };
        let common = match self.common {
            Some(common) => Some(common.acquire_many_owned(self.units).await.ok()?),
            None => None,
        };
        Some(Room { _own: own, _common: common })
    }
}

type Waiting = Pin<Box<dyn Future<Output = Option<Room>> + Send>>;

impl Arriving {
    fn new(inner: Body, arrival: Arrival, user: impl Fn() -> Option<u32> + Send + 'static) -> Arriving {
        Arriving {
            inner,
            arrival,
            messages: Messages::default(),
            expecting: true,
            deadline: None,
            room: None,
            waiting: None,
            user: Box::new(user),
        }
    }

    /// Returns the next frame, once it has its memory; refuses the request when time is up.
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some((_, room)) = &mut self.waiting {
            let room = ready!(room.as_mut().poll(cx));
            let (frame, _) = self.waiting.take().expect("it was there a line ago");
            self.room = room;
            return Poll::Ready(Some(Ok(frame)));
        }
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            ended => return Poll::Ready(ended),
        };
        let Some(data) = frame.data_ref() else { return Poll::Ready(Some(Ok(frame))) };
        let finished = self.messages.feed(data);
        if finished > 0 {
            (self.room, self.expecting, self.deadline) = (None, false, None);
        }
        let Some(length) = self.messages.under_way() else { return Poll::Ready(Some(Ok(frame))) };
        self.expecting = true;
        if self.room.is_some() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let wanted = self.arrival.wanted((self.user)(), length);
        if let Some(room) = wanted.take() {
            self.room = Some(room);
            return Poll::Ready(Some(Ok(frame)));
        }
        let room: Waiting = Box::pin(wanted.wait());
        self.waiting = Some((frame, room));
        self.next(cx)
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Poll::Ready(come) = self.next(cx) {
            return Poll::Ready(come);
        }
        if !self.expecting {
            return Poll::Pending;
        }
        let patience = self.arrival.patience;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(deadline.as_mut().poll(cx));
        let status = if self.waiting.is_some() {
            refusal::busy("too many large requests are on their way at once")
        } else {
            Status::deadline_exceeded(format!(
                "the request was not there within {} s",
                patience.as_secs_f32()
            ))
        };
        let why = status.message();
        self.arrival.late.tell(|more| tracing::warn!(more, "a request was given up: {why}"));
        // The rest of the request is not read.
        (self.inner, self.waiting, self.room, self.expecting) = (Body::empty(), None, None, false);
        Poll::Ready(Some(Err(status)))
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The position of a body in its sequence of messages.
#[derive(Debug, Default)]
struct Messages {
    header: [u8; HEADER],
    /// Number of header bytes that have come.
    have: usize,
    /// Length of the message whose header is complete.
    length: usize,
    /// Number of bytes of that message that are still to come.
    left: usize,
}

impl Messages {
    /// Advances over data; returns the number of messages that became complete.
    fn feed(&mut self, mut data: &[u8]) -> usize {
        let mut finished = 0;
        while data.has_remaining() {
            if self.have < HEADER {
                let part = data.len().min(HEADER - self.have);
                self.header[self.have..self.have + part].copy_from_slice(&data[..part]);
                self.have += part;
                data.advance(part);
                if self.have < HEADER {
                    break;
                }
                let [_, length @ ..] = self.header;
                self.length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                self.left = self.length;
            }
            let part = data.len().min(self.left);
            self.left -= part;
            data.advance(part);
            if self.left == 0 {
                finished += 1;
                *self = Messages::default();
            }
        }
        finished
    }

    /// Returns the length of the message that has begun and is not complete; 0 while the header is
    /// incomplete. `None` between two messages.
    fn under_way(&self) -> Option<usize> {
        (self.have > 0).then_some(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A time limit that is soon over.
    const MOMENT: Duration = Duration::from_millis(10);

    /// A body that yields these pieces, and then nothing.
    struct Pieces(VecDeque<Bytes>);

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            self.0.pop_front().map_or(Poll::Pending, |piece| Poll::Ready(Some(Ok(Frame::data(piece)))))
        }
    }

    fn message(length: usize) -> Vec<u8> {
        let mut message = vec![0];
        message.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
        message.resize(HEADER + length, 7);
        message
    }

    fn arriving(arrival: &Arrival, pieces: &[&[u8]]) -> Pin<Box<Arriving>> {
        arriving_from(None, arrival, pieces)
    }

    fn arriving_from(user: Option<u32>, arrival: &Arrival, pieces: &[&[u8]]) -> Pin<Box<Arriving>> {
        let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
        Box::pin(Arriving::new(Body::new(Pieces(pieces)), arrival.clone(), move || user))
    }

    async fn next(body: &mut Pin<Box<Arriving>>) -> Result<usize, Status> {
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        frame.expect("it goes on").map(|frame| frame.into_data().unwrap().len())
    }

    #[test]
    fn messages_are_told_apart_however_they_are_cut() {
        let stream: Vec<u8> = [message(3), message(0), message(70_000), message(1)].concat();
        for size in [1, 2, 5, 7, 4096, stream.len()] {
            let mut messages = Messages::default();
            let finished: usize = stream.chunks(size).map(|piece| messages.feed(piece)).sum();
            assert_eq!((finished, messages.under_way()), (4, None), "{size}");
        }
        let mut messages = Messages::default();
        assert_eq!((messages.feed(&message(9)[..8]), messages.under_way()), (0, Some(9)));
    }

    #[tokio::test]
    async fn a_message_that_does_not_come_in_time_is_given_up() {
        let arrival = Arrival::new(1 << 20).with_patience(MOMENT);
        for begun in [&[][..], &[0], &message(9)[..8]] {
            let mut body = arriving(&arrival, &[begun]);
            assert_eq!(next(&mut body).await.unwrap(), begun.len());
            assert_eq!(next(&mut body).await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
        }
    }

    #[tokio::test]
    async fn between_messages_there_is_all_the_time_in_the_world() {
        let mut body = arriving(&Arrival::new(1 << 20).with_patience(MOMENT), &[&message(9)]);
        next(&mut body).await.unwrap();
        let waited = tokio::time::timeout(MOMENT * 5, next(&mut body)).await;
        assert!(waited.is_err(), "it goes on waiting");
    }

    #[tokio::test]
    async fn large_messages_on_their_way_share_one_store() {
        let arrival = Arrival::new(200 << 10);
        let large = message(150 << 10);
        let (mut first, mut second) =
            (arriving(&arrival, &[&large[..8], &large[8..]]), arriving(&arrival, &[&large[..8]]));
        next(&mut first).await.unwrap();
        let waits = tokio::time::timeout(MOMENT, next(&mut second)).await;
        assert!(waits.is_err(), "there is no room for it");
        next(&mut first).await.unwrap();
        next(&mut second).await.expect("the first has made room");
        let mut third = arriving(&arrival.clone().with_patience(MOMENT), &[&large[..8]]);
        let busy = next(&mut third).await.unwrap_err();
        assert_eq!(refusal::error_of(&busy).unwrap().code, refusal::BUSY);
        drop(second);
        next(&mut arriving(&arrival, &[&large[..8]])).await.expect("who is gone takes no room");
        next(&mut arriving(&arrival, &[&message(9)])).await.expect("small ones need none");
    }

    #[tokio::test]
    async fn half_sent_messages_of_one_user_leave_room_to_others() {
        let arrival = Arrival::new(MAX_MESSAGE * 4).with_patience(MOMENT);
        let largest = message(MAX_MESSAGE);
        let begin = |user| arriving_from(Some(user), &arrival, &[&largest[..8]]);
        let mut first = begin(1);
        next(&mut first).await.unwrap();
        let mut others: Vec<_> = (0..20).map(|_| begin(1)).collect();
        for other in &mut others {
            let busy = next(other).await.unwrap_err();
            assert_eq!(refusal::error_of(&busy).unwrap().code, refusal::BUSY);
        }
        next(&mut begin(2)).await.expect("another user has a share of his own");
        drop(first);
        next(&mut begin(1)).await.expect("the share is free again");
        assert_eq!(arrival.room.available_permits(), MAX_MESSAGE * 4 / UNIT);
        // Small messages count only against the share.
        let small = message(SMALL);
        let mut some: Vec<_> =
            (0..MAX_MESSAGE / SMALL).map(|_| arriving_from(Some(1), &arrival, &[&small[..8]])).collect();
        for body in &mut some {
            next(body).await.unwrap();
        }
        next(&mut arriving_from(Some(1), &arrival, &[&small[..8]])).await.unwrap_err();
        next(&mut arriving_from(Some(2), &arrival, &[&small[..8]])).await.unwrap();
    }
}
