/* libucp, loaded at run time, so that one binary runs with and without it: its functions by name,
 * and what its statuses mean. */
#ifndef TRANSPORT_UCX_LIBRARY_H
#define TRANSPORT_UCX_LIBRARY_H

#include <tutti/tutti.h>

#include <ucp/api/ucp.h>

/*      result                 name                    parameters */
#define UCX_FUNCTIONS(X)                                                                           \
	X(ucs_status_t, ucp_config_read,                                                           \
	  (const char *prefix, const char *file, ucp_config_t **config))                           \
	X(ucs_status_t, ucp_config_modify,                                                         \
	  (ucp_config_t * config, const char *name, const char *value))                            \
	X(void, ucp_config_release, (ucp_config_t * config))                                       \
	X(ucs_status_t, ucp_init_version,                                                          \
	  (unsigned major, unsigned minor, const ucp_params_t *params, const ucp_config_t *config, \
	   ucp_context_h *context))                                                                \
	X(void, ucp_cleanup, (ucp_context_h context))                                              \
	X(ucs_status_t, ucp_worker_create,                                                         \
	  (ucp_context_h context, const ucp_worker_params_t *params, ucp_worker_h *worker))        \
	X(void, ucp_worker_destroy, (ucp_worker_h worker))                                         \
	X(ucs_status_t, ucp_worker_get_address,                                                    \
	  (ucp_worker_h worker, ucp_address_t * *address, size_t * bytes))                         \
	X(void, ucp_worker_release_address, (ucp_worker_h worker, ucp_address_t * address))        \
	X(ucs_status_t, ucp_worker_get_efd, (ucp_worker_h worker, int *fd))                        \
	X(ucs_status_t, ucp_worker_arm, (ucp_worker_h worker))                                     \
	X(unsigned, ucp_worker_progress, (ucp_worker_h worker))                                    \
	X(ucs_status_t, ucp_worker_set_am_recv_handler,                                            \
	  (ucp_worker_h worker, const ucp_am_handler_param_t *param))                              \
	X(ucs_status_t, ucp_ep_create,                                                             \
	  (ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *ep))                      \
	X(ucs_status_ptr_t, ucp_ep_close_nbx, (ucp_ep_h ep, const ucp_request_param_t *param))     \
	X(ucs_status_ptr_t, ucp_am_send_nbx,                                                       \
	  (ucp_ep_h ep, unsigned id, const void *header, size_t header_bytes, const void *buffer,  \
	   size_t count, const ucp_request_param_t *param))                                        \
	X(ucs_status_ptr_t, ucp_am_recv_data_nbx,                                                  \
	  (ucp_worker_h worker, void *desc, void *buffer, size_t count,                            \
	   const ucp_request_param_t *param))                                                      \
	X(void, ucp_request_free, (void *request))                                                 \
	X(const char *, ucs_status_string, (ucs_status_t status))

struct ucx_library {
#define FUNCTION(result, name, parameters) result(*name) parameters;
	UCX_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* The same for all threads, loaded by the first call. UNSUPPORTED says what is missing, and which
 * package has it. */
tutti_status ucx_library(const struct ucx_library **library);

/* Configures UCX's shared memory for a context of one of `ranks` ranks. Keeps what the environment
 * sets. */
void ucx_configure_shm(const struct ucx_library *library, ucp_config_t *config, int ranks);
#define UCX_SHM_WORKER_BYTES ((uint64_t)1 << 20) /* of /dev/shm: more than a worker takes */
/* Free bytes of /dev/shm; 0: there is none. */
uint64_t ucx_shm_free_bytes(void);

/* It writes nothing by itself: see library.c. */
#define UCX_SAYS_MORE "UCX_LOG_LEVEL=error says more"

/* UCX ends the process where it finds none. SYSTEM: so many cannot be opened. */
tutti_status ucx_needs_descriptors(int count);

/* UCX's status as one of ours: PEER where the other end or the way to it is gone, DEVICE where a
 * device of this machine fails. INTERNAL: what no caller of UCX should see. */
tutti_status ucx_status(ucs_status_t status);

#endif
