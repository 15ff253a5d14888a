/* libibverbs, loaded at run time, so that one binary runs with and without it: its functions by
 * name. What the header has inline (posting, polling) goes through the device's own table, and is
 * called as it is. */
#ifndef TRANSPORT_VERBS_LIBRARY_H
#define TRANSPORT_VERBS_LIBRARY_H

#include <tutti/tutti.h>

#include <infiniband/verbs.h>
#include <stdbool.h>

/*      result                     name                 parameters */
#define VERBS_FUNCTIONS(X)                                                                         \
	X(struct ibv_device **, get_device_list, (int *count))                                     \
	X(void, free_device_list, (struct ibv_device **list))                                      \
	X(const char *, get_device_name, (struct ibv_device *device))                              \
	X(struct ibv_context *, open_device, (struct ibv_device *device))                          \
	X(int, close_device, (struct ibv_context *context))                                        \
	X(int, query_device, (struct ibv_context *context, struct ibv_device_attr *attr))          \
	X(struct ibv_pd *, alloc_pd, (struct ibv_context *context))                                \
	X(int, dealloc_pd, (struct ibv_pd *pd))                                                    \
	X(struct ibv_mr *, reg_mr, (struct ibv_pd *pd, void *at, size_t bytes, int access))        \
	X(struct ibv_mr *, reg_dmabuf_mr,                                                          \
	  (struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access))   \
	X(int, dereg_mr, (struct ibv_mr *mr))                                                      \
	X(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context *context))           \
	X(int, destroy_comp_channel, (struct ibv_comp_channel *channel))                           \
	X(struct ibv_cq *, create_cq,                                                              \
	  (struct ibv_context *context, int cqe, void *cq_context,                                 \
	   struct ibv_comp_channel *channel, int vector))                                          \
	X(int, destroy_cq, (struct ibv_cq *cq))                                                    \
	X(int, get_cq_event,                                                                       \
	  (struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context))               \
	X(void, ack_cq_events, (struct ibv_cq *cq, unsigned count))                                \
	X(struct ibv_qp *, create_qp, (struct ibv_pd *pd, struct ibv_qp_init_attr *attr))          \
	X(int, modify_qp, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask))                 \
	X(int, destroy_qp, (struct ibv_qp *qp))                                                    \
	X(int, fork_init, (void))                                                                  \
	X(const char *, wc_status_str, (enum ibv_wc_status status))                                \
	X(const char *, port_state_str, (enum ibv_port_state state))

struct verbs_library {
#define FUNCTION(result, name, parameters) result(*name) parameters;
	VERBS_FUNCTIONS(FUNCTION)
#undef FUNCTION
	/* Names of its own: the header's are macros. */
	int (*port_query)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
	int (*gid_query)(struct ibv_context *context, uint32_t port, uint32_t index,
			 struct ibv_gid_entry *entry, uint32_t flags, size_t bytes);
};

/* The same for all threads, loaded by the first call. UNSUPPORTED says what is missing, and which
 * package has it. */
tutti_status verbs_library(const struct verbs_library **library);

/* This process has it already; nothing is loaded. */
bool verbs_library_is_loaded(void);

/* A port of a device. Returns errno's value. */
int verbs_port_query(const struct verbs_library *library, struct ibv_context *context, uint8_t port,
		     struct ibv_port_attr *attr);

#endif
