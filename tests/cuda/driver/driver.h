/* A driver of CUDA made of shared memory and threads. One lock protects all that it knows; copies,
 * kernels and host functions run without it. */
#ifndef TESTS_CUDA_DRIVER_H
#define TESTS_CUDA_DRIVER_H

#include "tests/cuda/driver/prototypes.h"

#include <pthread.h>
#include <stdbool.h>

#define MAX_GPUS        16
#define MAX_CONNECTIONS 32

#define TRY(call)                                                                                  \
	do {                                                                                       \
		CUresult try_error = (call);                                                       \
		if (try_error != CUDA_SUCCESS)                                                     \
			return try_error;                                                          \
	} while (0)

/* A primary context; there are no others. */
struct CUctx_st {
	int gpu;
	int retained;
	CUresult error;      /* sticky: every later call gives it */
	unsigned peers;      /* bit of each device whose memory its kernels and copies may reach */
	struct CUstream_st *legacy, *streams; /* streams: all of them, the legacy one included */
	unsigned n_streams;                   /* that have been */
	struct task *connections[MAX_CONNECTIONS]; /* the last one of each, held */
};

/* What the environment says, read by the first cuInit. */
struct settings {
	int gpus;
	unsigned peers[MAX_GPUS]; /* bits of the devices whose memory it can map */
	size_t memory;            /* bytes of each device */
	unsigned sms, blocks_per_sm;
	bool has_mps;               /* devices say so, no more */
	bool has_pieces, has_fds;   /* cuMemCreate, and descriptors of its memory */
	bool has_fabric, is_fabric_refused; /* as devices say; creation with it fails */
	bool has_multicast;
	bool has_wide_waits; /* for words of 64 bits */
	unsigned dma_buf; /* FAKE_CUDA_DMA_BUF */
	size_t lacks_dma_buf, refuses_dma_buf; /* ordinals, where these are set */
	unsigned connections; /* to a device; 0: one for each stream */
	const char *machine; /* FAKE_CUDA_MACHINE: the file whose locks stand for devices, or NULL */
};

extern struct settings settings;
extern struct CUctx_st contexts[MAX_GPUS];

/* Nothing but this lock, and broadcast when a context fails. */
extern pthread_mutex_t driver_lock;
extern pthread_cond_t driver_failed;

/* Only this driver has it, and so tests know it by that. settings.connections. */
__attribute__((visibility("default"))) unsigned fake_cuda_connections(void);

/* Whether the function may be called here at all. A host function that calls the driver ends the
 * process: on a GPU it may hang. */
CUresult driver_enter(void);
void driver_in_host_function(bool is_in);
/* Between the two no other thread's call goes on. */
void driver_hold(void);
void driver_let_go(void);

/* The same, and there is a current context; it may have a sticky error. */
CUresult context_current(CUcontext *context);
/* The same, and it has none. */
CUresult context_working(CUcontext *context);
/* Any thread, with the lock. The first error stays. */
void context_fail(CUcontext context, CUresult error);

/* Whether memory of that device may be mapped by the other one. */
bool gpu_can_reach(int gpu, int peer);

/* Threads yield and change places, as FAKE_CUDA_DELAY has it. Without the lock. */
void driver_delay(void);

/* Faults by count, of FAKE_CUDA_FAULTS: the error that this call gets, or CUDA_SUCCESS. */
enum fault_place {
	FAULT_MEMORY,
	FAULT_LAUNCH,
	FAULT_COPY,
	FAULT_IPC,
	FAULT_PEER,
	FAULT_MULTICAST,
	FAULT_DMA_BUF,
	FAULT_PLACES
};
void faults_read(const char *text);
CUresult fault_here(enum fault_place place);

void *must_alloc(size_t bytes); /* zeroed; a test without memory ends */

#endif
