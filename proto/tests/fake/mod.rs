//! A controller with the answers of a test, behind a real connection on loopback.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use spur_core::text::address::HostPort;
use spur_proto::arrival::Arrival;
use spur_proto::listen::{Incoming, Limits};
use spur_proto::tls::ServerConfig;
use spur_proto::v1::controller_server::{Controller, ControllerServer};
use spur_proto::v1::{self, *};
use tokio::net::TcpListener;
use tokio_stream::{StreamExt, iter};
use tonic::{Request, Response, Status, Streaming};

type Answer<T> = Result<T, Status>;
type Later<'a, T> = Pin<Box<dyn Future<Output = Answer<Response<T>>> + Send + 'a>>;
type Chunks<T> = tokio_stream::Iter<std::vec::IntoIter<Answer<T>>>;

fn no<T>() -> Answer<T> {
    Err(Status::unimplemented("no test asks for this"))
}

/// The answers of a test.
pub(crate) trait Answers: Send + Sync + 'static {
    fn ping(&self, _: Request<PingRequest>) -> Answer<PingResponse> {
        no()
    }
    fn submit(&self, _: Request<SubmitRequest>) -> Answer<SubmitResponse> {
        no()
    }
    fn cancel_jobs(&self, _: CancelJobsRequest) -> Answer<CancelJobsResponse> {
        no()
    }
    fn watch_jobs(&self, _: WatchJobsRequest) -> Answer<Vec<Answer<WatchJobsResponse>>> {
        no()
    }
    fn create_step(&self, _: CreateStepRequest) -> Answer<CreateStepResponse> {
        no()
    }
    fn abandon_step(&self, _: AbandonStepRequest) -> Answer<AbandonStepResponse> {
        no()
    }
}

struct Fake<A>(A);

macro_rules! never_asked {
    ($($call:ident($request:ty) -> $answer:ty;)+) => {$(
        fn $call<'life0, 'async_trait>(&'life0 self, _: Request<$request>) -> Later<'async_trait, $answer>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(async { no() })
        }
    )+};
}

macro_rules! answered {
    ($($call:ident($request:ty) -> $answer:ty, $take:expr, $give:expr;)+) => {$(
        fn $call<'life0, 'async_trait>(&'life0 self, request: Request<$request>) -> Later<'async_trait, $answer>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            Box::pin(async move { self.0.$call($take(request)).map($give).map(Response::new) })
        }
    )+};
}

impl<A: Answers> Controller for Fake<A> {
    type SubmitStreamStream = Chunks<SubmitStreamResponse>;
    type ListJobsStream = Chunks<ListJobsResponse>;
    type ListPrioritiesStream = Chunks<ListPrioritiesResponse>;
    type ListStepsStream = Chunks<ListStepsResponse>;
    type ListNodesStream = Chunks<ListNodesResponse>;
    type ListTopologyStream = Chunks<ListTopologyResponse>;
    type WatchJobsStream = Chunks<WatchJobsResponse>;
    type WatchClusterStream = Chunks<WatchClusterResponse>;
    type HoldAllocationStream = Chunks<HoldAllocationResponse>;
    type ListAccountingStream = Chunks<ListAccountingResponse>;
    type ListNodeEventsStream = Chunks<ListNodeEventsResponse>;
    type ListAccountsStream = Chunks<ListAccountsResponse>;

    answered! {
        ping(PingRequest) -> PingResponse, |r| r, |a| a;
        submit(SubmitRequest) -> SubmitResponse, |r| r, |a| a;
        cancel_jobs(CancelJobsRequest) -> CancelJobsResponse, Request::into_inner, |a| a;
        watch_jobs(WatchJobsRequest) -> Self::WatchJobsStream, Request::into_inner, iter;
        create_step(CreateStepRequest) -> CreateStepResponse, Request::into_inner, |a| a;
        abandon_step(AbandonStepRequest) -> AbandonStepResponse, Request::into_inner, |a| a;
    }

    never_asked! {
        submit_stream(Streaming<SubmitRequest>) -> Self::SubmitStreamStream;
        test_submit(SubmitRequest) -> TestSubmitResponse;
        explain_job(ExplainJobRequest) -> ExplainJobResponse;
        fix_job(FixJobRequest) -> FixJobResponse;
        defragment(DefragmentRequest) -> DefragmentResponse;
        update_job(UpdateJobRequest) -> JobsChangedResponse;
        hold_jobs(HoldJobsRequest) -> JobsChangedResponse;
        release_jobs(ReleaseJobsRequest) -> JobsChangedResponse;
        requeue_jobs(RequeueJobsRequest) -> JobsChangedResponse;
        suspend_jobs(SuspendJobsRequest) -> JobsChangedResponse;
        notify_job(NotifyJobRequest) -> NotifyJobResponse;
        get_script(GetScriptRequest) -> GetScriptResponse;
        watch_cluster(WatchClusterRequest) -> Self::WatchClusterStream;
        list_jobs(ListJobsRequest) -> Self::ListJobsStream;
        list_priorities(ListPrioritiesRequest) -> Self::ListPrioritiesStream;
        list_steps(ListStepsRequest) -> Self::ListStepsStream;
        list_nodes(ListNodesRequest) -> Self::ListNodesStream;
        list_partitions(ListPartitionsRequest) -> ListPartitionsResponse;
        list_topology(ListTopologyRequest) -> Self::ListTopologyStream;
        show_config(ShowConfigRequest) -> ShowConfigResponse;
        expand_hostlist(ExpandHostlistRequest) -> ExpandHostlistResponse;
        update_nodes(UpdateNodesRequest) -> UpdateNodesResponse;
        create_nodes(CreateNodesRequest) -> CreateNodesResponse;
        delete_nodes(DeleteNodesRequest) -> DeleteNodesResponse;
        update_partition(UpdatePartitionRequest) -> UpdatePartitionResponse;
        create_partition(CreatePartitionRequest) -> CreatePartitionResponse;
        delete_partition(DeletePartitionRequest) -> DeletePartitionResponse;
        get_statistics(GetStatisticsRequest) -> GetStatisticsResponse;
        list_usage(ListUsageRequest) -> ListUsageResponse;
        set_debug(SetDebugRequest) -> SetDebugResponse;
        top_jobs(TopJobsRequest) -> JobsChangedResponse;
        create_reservation(CreateReservationRequest) -> CreateReservationResponse;
        update_reservation(UpdateReservationRequest) -> UpdateReservationResponse;
        delete_reservation(DeleteReservationRequest) -> DeleteReservationResponse;
        list_reservations(ListReservationsRequest) -> ListReservationsResponse;
        list_licenses(ListLicensesRequest) -> ListLicensesResponse;
        reconfigure(ReconfigureRequest) -> ReconfigureResponse;
        shutdown(ShutdownRequest) -> ShutdownResponse;
        raise_feature_level(RaiseFeatureLevelRequest) -> RaiseFeatureLevelResponse;
        hold_allocation(HoldAllocationRequest) -> Self::HoldAllocationStream;
        end_allocation(EndAllocationRequest) -> EndAllocationResponse;
        list_accounting(ListAccountingRequest) -> Self::ListAccountingStream;
        list_node_events(ListNodeEventsRequest) -> Self::ListNodeEventsStream;
        change_accounts(ChangeAccountsRequest) -> ChangeAccountsResponse;
        list_accounts(ListAccountsRequest) -> Self::ListAccountsStream;
        import_history(ImportHistoryRequest) -> ImportHistoryResponse;
        fix_runaway_jobs(FixRunawayJobsRequest) -> FixRunawayJobsResponse;
    }
}

/// Serves until the test ends; the first `broken` connections are accepted and closed at once.
pub(crate) async fn serve(answers: impl Answers, broken: usize) -> HostPort {
    serve_with(answers, broken, None, Limits::for_process(1000)).await
}

/// Serves as [`serve`] does, behind TLS if there is any, with limits on connections.
pub(crate) async fn serve_with(
    answers: impl Answers,
    broken: usize,
    tls: Option<Arc<ServerConfig>>,
    limits: Limits,
) -> HostPort {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let incoming = Incoming::tcp(listener, tls, limits).skip(broken);
    let mut server = tonic::transport::Server::builder().layer(Arrival::new(1 << 20));
    let router = server.add_service(ControllerServer::new(Fake(answers)));
    tokio::spawn(router.serve_with_incoming(incoming));
    address
}

/// Returns the identity of some user.
pub(crate) fn somebody() -> spur_proto::client::Identity {
    let claims = v1::TokenClaims { uid: 1000, user: "ada".into(), ..TokenClaims::default() };
    spur_proto::client::Identity::Unsigned(claims)
}
