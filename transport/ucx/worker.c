/* The UCX worker and the UCX endpoint of a conn, and what UCX calls back: blocks that have been
 * sent, that have come, that have been fetched, and a peer that is gone. The callbacks only note
 * what happened; ucx_conn_move acts on it. */
#include "transport/ucx/ucx.h"

#include "core/status.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define AM_ID          1
#define CLOSING_PASSES 10000 /* of UCX's progress before a worker is destroyed, at most */
#define IDLE_PASSES    100   /* without progress: UCX has completed or given up what it could */
#define DESCRIPTORS    64    /* more than a worker takes */
#define PASSES         16    /* of UCX's progress in one of ours */

static const struct ucx_library *ucx_library_of(const struct ucx_conn *conn)
{
	return ucx_endpoint_of(conn)->library;
}

static void ucx_broke(struct ucx_conn *conn, ucs_status_t status)
{
	if (conn->wire.broken == UCS_OK && !conn->wire.is_closing)
		conn->wire.broken = status;
}

static void worker_peer_failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	(void)ep;
	ucx_broke(arg, status);
}

static void ucx_slot_done(struct ucx_slot *slot, ucs_status_t status)
{
	slot->is_busy = false;
	slot->conn->busy--;
	slot->conn->busy_small -= !slot->is_bulk;
	if (status != UCS_OK)
		ucx_broke(slot->conn, status);
	else
		slot->is_complete = true;
}

static void ucx_on_sent(void *request, ucs_status_t status, void *slot)
{
	ucx_slot_done(slot, status);
	ucx_library_of(((struct ucx_slot *)slot)->conn)->ucp_request_free(request);
}

static void worker_fetch_done(struct ucx_fetch *fetch, ucs_status_t status, size_t bytes)
{
	if (status == UCS_OK && bytes != fetch->bytes)
		status = UCS_ERR_MESSAGE_TRUNCATED;
	if (status != UCS_OK)
		ucx_broke(fetch->conn, status);
	else
		fetch->is_done = true;
}

static void worker_on_fetched(void *request, ucs_status_t status, size_t bytes, void *fetch)
{
	worker_fetch_done(fetch, status, bytes);
	ucx_library_of(((struct ucx_fetch *)fetch)->conn)->ucp_request_free(request);
}

static void worker_take_counts(struct ucx_conn *conn, const struct ucx_header *header)
{
	if (ucx_reached(header->got, conn->peer.got))
		conn->peer.got = header->got;
	if (ucx_reached(header->arrived, conn->peer.arrived))
		conn->peer.arrived = header->arrived;
	if (ucx_reached(header->committed, conn->peer.committed))
		conn->peer.committed = header->committed;
	conn->owes_ack |= header->wants_ack != 0;
	if (conn->state == UCX_CONNECTED) {
		conn->state = UCX_OPEN;
		ucx_endpoint_of(conn)->unsettled--;
	}
}

/* Blocks may come in another order than they were sent. UCS_INPROGRESS keeps desc. */
static ucs_status_t worker_on_arrival(void *arg, const void *at, size_t header_bytes, void *data,
				      size_t bytes, const ucp_am_recv_param_t *param)
{
	bool is_bulk = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
	struct ucx_conn *conn = arg;
	struct ucx_header header;

	if (conn->wire.is_closing || conn->wire.broken != UCS_OK)
		return UCS_OK;
	if (header_bytes != sizeof header) {
		ucx_broke(conn, UCS_ERR_INVALID_PARAM);
		return UCS_OK;
	}
	memcpy(&header, at, sizeof header);
	worker_take_counts(conn, &header);
	if (header.kind == UCX_NOTICE)
		return UCS_OK;
	uint32_t place = header.number % UCX_WINDOW;
	struct ucx_arrival *arrival = &conn->arrivals[place];
	if (header.number - conn->got >= UCX_WINDOW || arrival->is_here ||
	    bytes > (is_bulk ? UCX_BLOCK : UCX_EAGER)) {
		ucx_broke(conn, UCS_ERR_INVALID_PARAM);
		return UCS_OK;
	}
	*arrival = (struct ucx_arrival){header, bytes, is_bulk ? data : NULL, true};
	if (!is_bulk) {
		memcpy(conn->eager_in + (size_t)place * UCX_EAGER, data, bytes);
		conn->eager_bytes += (uint32_t)bytes;
	}
	while (conn->arrivals[conn->arrived % UCX_WINDOW].is_here &&
	       conn->arrivals[conn->arrived % UCX_WINDOW].header.number == conn->arrived)
		conn->arrived++;
	return is_bulk ? UCS_INPROGRESS : UCS_OK;
}

static tutti_status ucx_cannot(const struct ucx_conn *conn, const char *what, ucs_status_t status)
{
	return fail(ucx_status(status),
		    "ucx: rank %d cannot connect to rank %d (%s): %s; " UCX_SAYS_MORE,
		    ucx_endpoint_of(conn)->rank, conn->base.peer, what,
		    ucx_library_of(conn)->ucs_status_string(status));
}

/* If /dev/shm is full, UCX returns one of three statuses. */
static tutti_status worker_cannot_create_worker(const struct ucx_conn *conn, ucs_status_t status)
{
	uint64_t room = ucx_shm_free_bytes();

	if (status == UCS_ERR_SHMEM_SEGMENT) /* of this end */
		status = UCS_ERR_NO_MEMORY;
	if (ucx_status(status) != TUTTI_ERR_MEMORY || room >= UCX_SHM_WORKER_BYTES)
		return ucx_cannot(conn, "ucp_worker_create", status);
	return fail(TUTTI_ERR_MEMORY,
		    "ucx: rank %d cannot connect to rank %d: %s; /dev/shm has %llu KiB left, of "
		    "which a connection takes up to 1 MiB: make it larger (docker: --shm-size), or "
		    "set UCX_TLS=^posix",
		    ucx_endpoint_of(conn)->rank, conn->base.peer,
		    ucx_library_of(conn)->ucs_status_string(status),
		    (unsigned long long)(room >> 10));
}

tutti_status ucx_wire_open(struct ucx_conn *conn)
{
	const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
					    .thread_mode = UCS_THREAD_MODE_SERIALIZED};
	const ucp_am_handler_param_t handler = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
			      UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
		.id = AM_ID,
		.flags = UCP_AM_FLAG_WHOLE_MSG,
		.cb = worker_on_arrival,
		.arg = conn};
	const struct ucx_library *library = ucx_library_of(conn);

	TRY(ucx_needs_descriptors(DESCRIPTORS));
	ucs_status_t status = library->ucp_worker_create(ucx_endpoint_of(conn)->context, &params,
							 &conn->wire.worker);

	if (status != UCS_OK) {
		conn->wire.worker = NULL;
		return worker_cannot_create_worker(conn, status);
	}
	status = library->ucp_worker_set_am_recv_handler(conn->wire.worker, &handler);
	if (status != UCS_OK)
		return ucx_cannot(conn, "ucp_worker_set_am_recv_handler", status);
	status = library->ucp_worker_get_efd(conn->wire.worker, &conn->wire.fd);
	if (status != UCS_OK)
		return ucx_cannot(conn, "ucp_worker_get_efd", status);
	return TUTTI_OK;
}

tutti_status ucx_wire_hello(struct ucx_conn *conn, struct ucx_hello **out, size_t *out_bytes)
{
	const struct ucx_library *library = ucx_library_of(conn);
	struct ucx_hello *hello;
	ucp_address_t *address;
	size_t bytes;
	ucs_status_t status = library->ucp_worker_get_address(conn->wire.worker, &address, &bytes);

	if (status != UCS_OK)
		return ucx_cannot(conn, "ucp_worker_get_address", status);
	*out_bytes = sizeof *hello + bytes;
	hello = *out_bytes <= OOB_HELLO_MOST ? malloc(*out_bytes) : NULL;
	if (hello) {
		hello->address_bytes = (uint32_t)bytes;
		memcpy(hello + 1, address, bytes);
	}
	library->ucp_worker_release_address(conn->wire.worker, address);
	if (!hello)
		return fail(TUTTI_ERR_MEMORY,
			    "ucx: no memory for an address of %zu bytes, or it "
			    "is longer than %d: UCX_TLS or UCX_NET_DEVICES make it shorter",
			    bytes, OOB_HELLO_MOST);
	*out = hello;
	return TUTTI_OK;
}

/* With peer-failure handling where what UCX finds has it. Its shared memory has none: there oob
 * alone says that the peer is gone. */
tutti_status ucx_wire_connect(struct ucx_conn *conn, const void *address)
{
	ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
						UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
						UCP_EP_PARAM_FIELD_ERR_HANDLER,
				  .address = address,
				  .err_mode = UCP_ERR_HANDLING_MODE_PEER,
				  .err_handler = {worker_peer_failed, conn}};
	const struct ucx_library *library = ucx_library_of(conn);
	ucs_status_t status = library->ucp_ep_create(conn->wire.worker, &params, &conn->wire.ep);

	conn->wire.has_force = status == UCS_OK;
	if (status == UCS_ERR_UNREACHABLE || status == UCS_ERR_UNSUPPORTED) {
		params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
		status = library->ucp_ep_create(conn->wire.worker, &params, &conn->wire.ep);
	}
	if (status == UCS_OK)
		return TUTTI_OK;
	conn->wire.ep = NULL;
	if (status == UCS_ERR_UNREACHABLE) /* the peer is there, its address has come */
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "ucx: no transport of UCX connects rank %d to rank %d; UCX_TLS and "
			    "UCX_NET_DEVICES say which it may use",
			    ucx_endpoint_of(conn)->rank, conn->base.peer);
	return ucx_cannot(conn, "ucp_ep_create", status);
}

void ucx_wire_unwatch(struct ucx_conn *conn)
{
	if (conn->wire.is_watched)
		epoll_ctl(ucx_endpoint_of(conn)->epoll_fd, EPOLL_CTL_DEL, conn->wire.fd, NULL);
	conn->wire.is_watched = false;
}

/* UCX 1.13 ends the process if a worker is destroyed while it copies a message out of another
 * process's memory (assertion ucs_arbiter_group_is_empty). It copies in pieces, one a pass; if the
 * other process is gone, the copy fails at once. */
static void worker_finish_requests(struct ucx_conn *conn)
{
	for (int pass = 0, idle = 0; pass < CLOSING_PASSES && idle < IDLE_PASSES; pass++)
		idle = ucx_library_of(conn)->ucp_worker_progress(conn->wire.worker) ? 0 : idle + 1;
}

void ucx_wire_close(struct ucx_conn *conn)
{
	const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
					   .flags = UCP_EP_CLOSE_FLAG_FORCE};
	const struct ucx_library *library = ucx_library_of(conn);

	if (!conn->wire.worker)
		return;
	/* Not while the two ends connect: UCX 1.13 ends the process then. */
	bool has_requests =
		conn->state == UCX_OPEN && (conn->busy > 0 || ucx_conn_is_in_flight(conn));
	conn->wire.is_closing = true;
	ucx_wire_unwatch(conn);
	if (has_requests) {
		ucs_status_ptr_t closing = NULL;
		if (conn->wire.has_force)
			closing = library->ucp_ep_close_nbx(conn->wire.ep, &force);
		worker_finish_requests(conn);
		if (UCS_PTR_IS_PTR(closing))
			library->ucp_request_free(closing);
	}
	library->ucp_worker_destroy(conn->wire.worker);
	conn->wire.worker = NULL;
	conn->wire.ep = NULL;
	conn->wire.broken = UCS_OK;
}

bool ucx_wire_progress(struct ucx_conn *conn)
{
	bool is_moving = false;

	for (int i = 0; i < PASSES && conn->wire.worker; i++) {
		if (ucx_library_of(conn)->ucp_worker_progress(conn->wire.worker) == 0)
			break;
		is_moving = true;
	}
	return is_moving;
}

void ucx_wire_send(struct ucx_conn *conn, struct ucx_slot *slot, const void *at, size_t bytes)
{
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.flags = slot->is_bulk ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER,
		.cb.send = ucx_on_sent,
		.memory_type = UCS_MEMORY_TYPE_HOST,
		.user_data = slot};

	slot->is_busy = true;
	conn->busy++;
	conn->busy_small += !slot->is_bulk;
	ucs_status_ptr_t request = ucx_library_of(conn)->ucp_am_send_nbx(
		conn->wire.ep, AM_ID, &slot->header, sizeof slot->header, at, bytes, &param);
	if (!UCS_PTR_IS_PTR(request))
		ucx_slot_done(slot, UCS_PTR_STATUS(request));
}

void ucx_wire_fetch(struct ucx_conn *conn, struct ucx_fetch *fetch, void *desc, void *to)
{
	size_t bytes = fetch->bytes;
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_RECV_INFO | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.cb.recv_am = worker_on_fetched,
		.memory_type = UCS_MEMORY_TYPE_HOST,
		.recv_info.length = &bytes,
		.user_data = fetch};
	ucs_status_ptr_t request = ucx_library_of(conn)->ucp_am_recv_data_nbx(
		conn->wire.worker, desc, to, fetch->bytes, &param);

	if (!UCS_PTR_IS_PTR(request))
		worker_fetch_done(fetch, UCS_PTR_STATUS(request), bytes);
}
