/* UCX's active messages: a peer of rpc_perf. Rank 1 makes progress in the thread that serves. */
#include "rpc_perf.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

enum { REQUEST = 1, ANSWER = 2, DEADLINE_S = 60 };

static struct {
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_ep_h to_callee; /* of rank 0 */
	int served, unsent; /* answers; of those, which UCX still keeps */
	bool has_failed;    /* to send one */
	time_t idle_since;  /* 0: it was not idle */
	/* Of rank 0: answers come in the order of the calls. */
	uint8_t answers[RPC_PERF_IN_FLIGHT][RPC_PERF_SHORT];
	void *requests[RPC_PERF_IN_FLIGHT];
	uint64_t answered, ended;
} ucx;

static int rpc_ucx_fail(const char *what, ucs_status_t status)
{
	fprintf(stderr, "rpc_perf: ucx: %s: %s\n", what, ucs_status_string(status));
	return -1;
}

/* Progress of a wait. A peer that is gone ends the program. */
static void rpc_ucx_progress(void)
{
	if (ucp_worker_progress(ucx.worker)) {
		ucx.idle_since = 0;
		return;
	}
	if (!ucx.idle_since)
		ucx.idle_since = time(NULL);
	if (time(NULL) - ucx.idle_since < DEADLINE_S)
		return;
	fprintf(stderr, "rpc_perf: ucx: nothing came within %d s\n", DEADLINE_S);
	exit(3);
}

static ucs_status_t rpc_ucx_finish(void *request)
{
	ucs_status_t status = UCS_PTR_STATUS(request);

	if (UCS_PTR_IS_PTR(request)) {
		while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
			rpc_ucx_progress();
		ucp_request_free(request);
	}
	return status;
}

/* Frees a copy of an answer when it is sent. */
static void rpc_ucx_answer_sent(void *request, ucs_status_t status, void *copy)
{
	if (status != UCS_OK)
		ucx.has_failed = rpc_ucx_fail("an answer", status);
	ucp_request_free(request);
	free(copy);
	ucx.unsent--;
}

static void rpc_ucx_send_answer(ucp_ep_h to, const void *data, size_t bytes)
{
	void *copy = malloc(bytes);
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
						     UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.send = rpc_ucx_answer_sent,
				     .user_data = copy};

	memcpy(copy, data, bytes);
	void *request = ucp_am_send_nbx(to, ANSWER, NULL, 0, copy, bytes, &param);
	if (UCS_PTR_IS_ERR(request))
		ucx.has_failed = rpc_ucx_fail("an answer", UCS_PTR_STATUS(request));
	if (UCS_PTR_IS_PTR(request))
		ucx.unsent++;
	else
		free(copy);
	ucx.served++;
}

/* A long payload that has come. */
struct landing {
	ucp_ep_h from;
	uint8_t *data;
	size_t bytes;
};

static void rpc_ucx_landed(void *request, ucs_status_t status, size_t length, void *arg)
{
	struct landing *l = arg;
	uint64_t digest =
		status == UCS_OK && length == l->bytes ? rpc_perf_digest(l->data, l->bytes) : 0;

	if (request)
		ucp_request_free(request);
	rpc_ucx_send_answer(l->from, &digest, sizeof digest);
	free(l->data);
	free(l);
}

static ucs_status_t rpc_ucx_on_request(void *arg, const void *header, size_t header_bytes,
				       void *data, size_t bytes, const ucp_am_recv_param_t *param)
{
	(void)arg;
	(void)header;
	(void)header_bytes;
	if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
		uint64_t digest = bytes > RPC_PERF_SHORT ? rpc_perf_digest(data, bytes) : 0;
		if (bytes > RPC_PERF_SHORT)
			rpc_ucx_send_answer(param->reply_ep, &digest, sizeof digest);
		else
			rpc_ucx_send_answer(param->reply_ep, data, bytes);
		return UCS_OK;
	}
	struct landing *l = malloc(sizeof *l);
	*l = (struct landing){param->reply_ep, malloc(bytes), bytes};
	ucp_request_param_t receive = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
						       UCP_OP_ATTR_FIELD_USER_DATA,
				       .cb.recv_am = rpc_ucx_landed,
				       .user_data = l};
	void *request = ucp_am_recv_data_nbx(ucx.worker, data, l->data, bytes, &receive);
	if (!UCS_PTR_IS_PTR(request))
		rpc_ucx_landed(NULL, UCS_PTR_STATUS(request), bytes, l);
	return UCS_INPROGRESS; /* data belong to the receive */
}

static ucs_status_t rpc_ucx_on_answer(void *arg, const void *header, size_t header_bytes,
				      void *data, size_t bytes, const ucp_am_recv_param_t *param)
{
	(void)arg;
	(void)header;
	(void)header_bytes;
	(void)param;
	memcpy(ucx.answers[ucx.answered++ % RPC_PERF_IN_FLIGHT], data, bytes);
	return UCS_OK;
}

static int rpc_ucx_open_worker(void)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
	ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				      .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
							UCP_AM_HANDLER_PARAM_FIELD_CB};
	ucs_status_t status = ucp_init(&params, NULL, &ucx.context);

	if (status == UCS_OK)
		status = ucp_worker_create(ucx.context, &worker, &ucx.worker);
	handler.id = REQUEST;
	handler.cb = rpc_ucx_on_request;
	if (status == UCS_OK)
		status = ucp_worker_set_am_recv_handler(ucx.worker, &handler);
	handler.id = ANSWER;
	handler.cb = rpc_ucx_on_answer;
	if (status == UCS_OK)
		status = ucp_worker_set_am_recv_handler(ucx.worker, &handler);
	return status == UCS_OK ? 0 : rpc_ucx_fail("a worker", status);
}

static int rpc_ucx_listen_there(void *to)
{
	ucp_address_t *address;
	size_t bytes;

	if (rpc_ucx_open_worker())
		return -1;
	ucs_status_t status = ucp_worker_get_address(ucx.worker, &address, &bytes);
	if (status != UCS_OK)
		return rpc_ucx_fail("its address", status);
	bool fits = bytes <= RPC_PERF_ADDRESS;
	if (fits)
		memcpy(to, address, bytes);
	ucp_worker_release_address(ucx.worker, address);
	return fits ? 0 : rpc_ucx_fail("its address", UCS_ERR_BUFFER_TOO_SMALL);
}

static int rpc_ucx_connect_there(const void *address)
{
	ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
				  .address = address};

	if (rpc_ucx_open_worker())
		return -1;
	ucs_status_t status = ucp_ep_create(ucx.worker, &params, &ucx.to_callee);
	return status == UCS_OK ? 0 : rpc_ucx_fail("an endpoint", status);
}

static int rpc_ucx_begin(int slot, const void *data, size_t bytes)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
				     .flags = UCP_AM_SEND_FLAG_REPLY};

	ucx.idle_since = 0;
	ucx.requests[slot] = ucp_am_send_nbx(ucx.to_callee, REQUEST, NULL, 0, data, bytes, &param);
	if (UCS_PTR_IS_ERR(ucx.requests[slot]))
		return rpc_ucx_fail("a call", UCS_PTR_STATUS(ucx.requests[slot]));
	return 0;
}

static int rpc_ucx_end(int slot, void *answer)
{
	while (ucx.answered <= ucx.ended)
		rpc_ucx_progress();
	memcpy(answer, ucx.answers[ucx.ended++ % RPC_PERF_IN_FLIGHT], RPC_PERF_SHORT);
	ucs_status_t status = rpc_ucx_finish(ucx.requests[slot]);
	return status == UCS_OK ? 0 : rpc_ucx_fail("a call", status);
}

static int rpc_ucx_serve(int calls, size_t bytes)
{
	const ucp_request_param_t whole = {0};

	(void)bytes;
	ucx.idle_since = 0;
	ucx.served = 0;
	while (ucx.served < calls || ucx.unsent)
		rpc_ucx_progress();
	/* Answers, and what else the peer waits for, may not have gone out yet. */
	ucs_status_t status = rpc_ucx_finish(ucp_worker_flush_nbx(ucx.worker, &whole));
	if (status != UCS_OK)
		return rpc_ucx_fail("a flush", status);
	return ucx.has_failed ? -1 : 0;
}

static void rpc_ucx_close_all(void)
{
	ucp_worker_destroy(ucx.worker);
	ucp_cleanup(ucx.context);
}

static const char *rpc_ucx_version(void)
{
	static char text[64];
	unsigned major, minor, release;

	ucp_get_version(&major, &minor, &release);
	snprintf(text, sizeof text, "UCX %u.%u.%u", major, minor, release);
	return text;
}

const struct rpc_contender rpc_perf_ucx = {.name = "ucx",
					   .version = rpc_ucx_version,
					   .listen = rpc_ucx_listen_there,
					   .connect = rpc_ucx_connect_there,
					   .begin = rpc_ucx_begin,
					   .end = rpc_ucx_end,
					   .serve = rpc_ucx_serve,
					   .close = rpc_ucx_close_all};
