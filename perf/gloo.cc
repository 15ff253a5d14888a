/* Gloo behind the calls that the benchmark driver makes, over TCP on loopback. Not a way to use
 * Tutti over Gloo: it knows blocking collectives of processes that it has forked itself. C++,
 * because that is Gloo's API. */
extern "C" {
#include "library.h"
#include "start.h"
}

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct tutti_comm {
	std::shared_ptr<gloo::rendezvous::Context> context;
	uint32_t tag;              /* of the next call              */
	std::vector<char> scratch; /* for a reduce off the root     */
};

/* This process's rank, from before the fork. */
static struct {
	int rank = 0, size = 1;
	std::string folder; /* where the ranks find each other */
} self;

static char message[512];

static tutti_status gloo_refuse(const char *why)
{
	snprintf(message, sizeof message, "%s", why);
	return TUTTI_ERR_UNSUPPORTED;
}

/* Gloo throws. */
template <typename Body> static tutti_status attempt(Body body)
{
	try {
		body();
		return TUTTI_OK;
	} catch (const std::exception &e) {
		snprintf(message, sizeof message, "%s", e.what());
		return TUTTI_ERR_SYSTEM;
	}
}

using Reduction = void (*)(void *, const void *, const void *, size_t);

template <typename T> static Reduction reduction_of(tutti_op op)
{
	switch (op) {
	case TUTTI_SUM:
		return static_cast<Reduction>(gloo::sum<T>);
	case TUTTI_PROD:
		return static_cast<Reduction>(gloo::product<T>);
	case TUTTI_MIN:
		return static_cast<Reduction>(gloo::min<T>);
	case TUTTI_MAX:
		return static_cast<Reduction>(gloo::max<T>);
	default:
		return nullptr;
	}
}

static Reduction gloo_reduction(tutti_dtype dtype, tutti_op op)
{
	switch (dtype) {
	case TUTTI_F32:
		return reduction_of<float>(op);
	case TUTTI_F64:
		return reduction_of<double>(op);
	case TUTTI_F16:
		return reduction_of<gloo::float16>(op);
	case TUTTI_I8:
		return reduction_of<int8_t>(op);
	case TUTTI_U8:
		return reduction_of<uint8_t>(op);
	case TUTTI_I16:
		return reduction_of<int16_t>(op);
	case TUTTI_U16:
		return reduction_of<uint16_t>(op);
	case TUTTI_I32:
		return reduction_of<int32_t>(op);
	case TUTTI_U32:
		return reduction_of<uint32_t>(op);
	case TUTTI_I64:
		return reduction_of<int64_t>(op);
	case TUTTI_U64:
		return reduction_of<uint64_t>(op);
	default:
		return nullptr;
	}
}

const char *library_name(void)
{
	static char name[128];

	snprintf(name, sizeof name, "Gloo %d.%d.%d%s", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR,
		 GLOO_VERSION_PATCH, GLOO_PACKAGE);
	return name;
}

const char *library_refuses(const struct request *r)
{
	if (r->is_on_gpu)
		return "the programs of Gloo measure memory of the host, no -g";
	if (r->is_async)
		return "the programs of Gloo make blocking calls only, no -z 0 and no -m";
	if (r->is_zero_copy)
		return "Gloo has no memory like that of --zero-copy";
	if (r->collective->is_reduced && !gloo_reduction(r->dtype, TUTTI_SUM))
		return "Gloo has no such type";
	if (r->collective->is_reduced && !gloo_reduction(r->dtype, r->op))
		return "Gloo has no such operation";
	return nullptr;
}

/* Gloo's options want a type, of which they take the size: body is called with one of that size. */
template <typename Body> static void with_type_of(size_t bytes, Body body)
{
	switch (bytes) {
	case 1:
		return body(uint8_t());
	case 2:
		return body(uint16_t());
	case 4:
		return body(uint32_t());
	default:
		return body(uint64_t());
	}
}

template <typename T> static T *typed(const void *pointer)
{
	return static_cast<T *>(const_cast<void *>(pointer));
}

tutti_status tutti_barrier(tutti_comm *comm, const tutti_call *)
{
	return attempt([&] {
		gloo::BarrierOptions options(comm->context);

		options.setTag(comm->tag++);
		gloo::barrier(options);
	});
}

/* Its faster one, as measured with 2 to 8 ranks on 2 cores: Gloo itself always takes the ring. */
static gloo::AllreduceOptions::Algorithm algorithm_for(size_t bytes)
{
	return self.size > 2 && bytes <= 2 << 20 ? gloo::AllreduceOptions::Algorithm::BCUBE
						 : gloo::AllreduceOptions::Algorithm::RING;
}

tutti_status tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_op op, tutti_comm *comm, const tutti_call *)
{
	auto body = [&](auto type) {
		using T = decltype(type);
		gloo::AllreduceOptions options(comm->context);

		if (send != recv)
			options.setInput(typed<T>(send), count);
		options.setOutput(typed<T>(recv), count);
		options.setReduceFunction(gloo_reduction(dtype, op));
		options.setAlgorithm(algorithm_for(count * sizeof(T)));
		options.setTag(comm->tag++);
		gloo::allreduce(options);
	};

	return count == 0 ? TUTTI_OK : attempt([&] { with_type_of(element_bytes(dtype), body); });
}

/* Gloo's needs room for the result on every rank. */
tutti_status tutti_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			  tutti_op op, int root, tutti_comm *comm, const tutti_call *)
{
	size_t bytes = count * element_bytes(dtype);
	bool is_root = self.rank == root;
	auto body = [&](auto type) {
		using T = decltype(type);
		gloo::ReduceOptions options(comm->context);

		if (!is_root && comm->scratch.size() < bytes)
			comm->scratch.resize(bytes);
		if (!is_root || send != recv)
			options.setInput(typed<T>(send), count);
		options.setOutput(typed<T>(is_root ? recv : comm->scratch.data()), count);
		options.setReduceFunction(gloo_reduction(dtype, op));
		options.setRoot(root);
		options.setTag(comm->tag++);
		gloo::reduce(options);
	};

	return count == 0 ? TUTTI_OK : attempt([&] { with_type_of(element_bytes(dtype), body); });
}

tutti_status tutti_broadcast(const void *send, void *recv, size_t count, tutti_dtype dtype,
			     int root, tutti_comm *comm, const tutti_call *)
{
	size_t bytes = count * element_bytes(dtype);

	return bytes == 0 ? TUTTI_OK : attempt([&] {
		gloo::BroadcastOptions options(comm->context);

		if (self.rank == root && send != recv)
			options.setInput(typed<char>(send), bytes);
		options.setOutput(typed<char>(recv), bytes);
		options.setRoot(root);
		options.setTag(comm->tag++);
		gloo::broadcast(options);
	});
}

tutti_status tutti_all_gather(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *)
{
	size_t bytes = count * element_bytes(dtype), size = static_cast<size_t>(self.size);
	bool in_place = send == typed<char>(recv) + static_cast<size_t>(self.rank) * bytes;

	return bytes == 0 ? TUTTI_OK : attempt([&] {
		gloo::AllgatherOptions options(comm->context);

		if (!in_place)
			options.setInput(typed<char>(send), bytes);
		options.setOutput(typed<char>(recv), bytes * size);
		options.setTag(comm->tag++);
		gloo::allgather(options);
	});
}

tutti_status tutti_gather(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			  tutti_comm *comm, const tutti_call *)
{
	size_t bytes = count * element_bytes(dtype), size = static_cast<size_t>(self.size);

	return bytes == 0 ? TUTTI_OK : attempt([&] {
		gloo::GatherOptions options(comm->context);

		options.setInput(typed<char>(send), bytes);
		if (self.rank == root)
			options.setOutput(typed<char>(recv), bytes * size);
		options.setRoot(root);
		options.setTag(comm->tag++);
		gloo::gather(options);
	});
}

// Gloo's is an older class, made for one pair of buffers: no program of it is built.
tutti_status tutti_reduce_scatter(const void *, void *, size_t, tutti_dtype, tutti_op, tutti_comm *,
				  const tutti_call *)
{
	return TUTTI_ERR_UNSUPPORTED;
}

tutti_status tutti_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			   tutti_comm *comm, const tutti_call *)
{
	size_t bytes = count * element_bytes(dtype);

	return bytes == 0 ? TUTTI_OK : attempt([&] {
		gloo::ScatterOptions options(comm->context);
		std::vector<char *> blocks;

		for (int rank = 0; self.rank == root && rank < self.size; rank++)
			blocks.push_back(typed<char>(send) + static_cast<size_t>(rank) * bytes);
		if (self.rank == root)
			options.setInputs(blocks, bytes);
		options.setOutput(typed<char>(recv), bytes);
		options.setRoot(root);
		options.setTag(comm->tag++);
		gloo::scatter(options);
	});
}

tutti_status tutti_all_to_all(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *)
{
	size_t bytes = count * element_bytes(dtype) * static_cast<size_t>(self.size);

	return bytes == 0 ? TUTTI_OK : attempt([&] {
		gloo::AlltoallOptions options(comm->context);

		options.setInput(typed<char>(send), bytes);
		options.setOutput(typed<char>(recv), bytes);
		options.setTag(comm->tag++);
		gloo::alltoall(options);
	});
}

/* The messages of the group that is open: they begin at once, and its end waits for them. */
struct gloo_message {
	std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
	bool is_send;
};
static std::vector<gloo_message> group;

tutti_status tutti_group_begin(void)
{
	group.clear();
	return TUTTI_OK;
}

/* Gloo has no connection of a rank with itself. Messages of a pair are in order, so one slot will
 * do. */
static tutti_status begin_message(const void *buf, size_t bytes, int peer, bool is_send,
				  tutti_comm *comm)
{
	if (peer == self.rank)
		return gloo_refuse("Gloo has no messages of a rank to itself");
	return bytes == 0 ? TUTTI_OK : attempt([&] {
		gloo_message begun = {comm->context->createUnboundBuffer(typed<char>(buf), bytes),
				      is_send};

		if (is_send)
			begun.buffer->send(peer, 0);
		else
			begun.buffer->recv(peer, 0);
		group.push_back(std::move(begun));
	});
}

tutti_status tutti_send(const void *buf, size_t count, tutti_dtype dtype, int peer,
			tutti_comm *comm, const tutti_call *)
{
	return begin_message(buf, count * element_bytes(dtype), peer, true, comm);
}

tutti_status tutti_recv(void *buf, size_t count, tutti_dtype dtype, int peer, tutti_comm *comm,
			const tutti_call *)
{
	return begin_message(buf, count * element_bytes(dtype), peer, false, comm);
}

tutti_status tutti_group_end(const tutti_call *)
{
	return attempt([&] {
		for (gloo_message &begun : group) {
			if (begun.is_send)
				begun.buffer->waitSend();
			else
				begun.buffer->waitRecv();
		}
		group.clear();
	});
}

static void forget_folder()
{
	std::error_code ignored;

	if (!self.folder.empty())
		std::filesystem::remove_all(self.folder, ignored);
}

tutti_status tutti_init(tutti_comm **comm, const tutti_config *)
{
	if (self.folder.empty() && getenv("WORLD_SIZE"))
		return gloo_refuse("Gloo's ranks are started by --ranks N, and WORLD_SIZE is set");
	return attempt([&] {
		auto context = std::make_shared<gloo::rendezvous::Context>(self.rank, self.size);
		auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
		auto made = std::make_unique<tutti_comm>();

		if (self.size > 1) {
			gloo::rendezvous::FileStore store(self.folder);

			context->connectFullMesh(store, device);
		}
		made->context = context;
		if (self.size > 1 && tutti_barrier(made.get(), nullptr) != TUTTI_OK)
			throw std::runtime_error(message);
		if (self.rank == 0)
			forget_folder();
		*comm = made.release();
	});
}

void tutti_comm_destroy(tutti_comm *comm)
{
	delete comm;
}

/* gloo_reap() ends the other ranks when this one exits. */
tutti_status tutti_comm_abort(tutti_comm *)
{
	return TUTTI_OK;
}

int tutti_rank(const tutti_comm *)
{
	return self.rank;
}

int tutti_size(const tutti_comm *)
{
	return self.size;
}

int tutti_local_rank(const tutti_comm *)
{
	return self.rank;
}

int tutti_local_size(const tutti_comm *)
{
	return self.size;
}

int tutti_num_nodes(const tutti_comm *)
{
	return 1;
}

const char *tutti_comm_error(const tutti_comm *)
{
	return message;
}

tutti_status tutti_set_error(tutti_status status, const char *text)
{
	snprintf(message, sizeof message, "%s", text);
	return status;
}

const char *tutti_status_string(tutti_status status)
{
	return status == TUTTI_ERR_UNSUPPORTED ? "not supported here" : "failed";
}

tutti_status tutti_work_wait(tutti_work **, int)
{
	return gloo_refuse("no asynchronous calls");
}

tutti_status tutti_mem_alloc(void **, size_t, tutti_comm *)
{
	return gloo_refuse("no memory of all ranks");
}

tutti_status tutti_mem_free(void *)
{
	return TUTTI_OK;
}

/* Waits for all of them; when one has failed, the others may wait for it for long, and are ended.
 */
static int gloo_reap(const std::vector<pid_t> &ranks)
{
	int code = 0, status;

	for (size_t left = ranks.size(); left > 0; left--) {
		if (wait(&status) < 0)
			return 3;
		int one = WIFEXITED(status) ? WEXITSTATUS(status) : 3;

		code = one > code ? one : code;
		for (pid_t pid : ranks)
			if (one >= 3)
				kill(pid, SIGTERM);
	}
	return code;
}

int start_processes(int ranks, int (*part)(int rank, void *arg), void *arg)
{
	const char *base = getenv("TMPDIR");
	std::string path = std::string(base ? base : "/tmp") + "/gloo-perf-XXXXXX";
	std::vector<pid_t> pids;
	pid_t parent = getpid();

	if (!mkdtemp(path.data())) {
		fprintf(stderr, "%s: cannot make a folder like %s: %s.\n",
			program_invocation_short_name, path.c_str(), strerror(errno));
		return 3;
	}
	self.folder = path;
	self.size = ranks;
	for (int rank = 0; rank < ranks; rank++) {
		pid_t pid = fork();

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			self.rank = rank;
			return getppid() == parent ? part(rank, arg) : 3;
		}
		if (pid > 0) {
			pids.push_back(pid);
			continue;
		}
		fprintf(stderr, "%s: only %d of %d ranks could be started: %s.\n",
			program_invocation_short_name, rank, ranks, strerror(errno));
		for (pid_t started : pids)
			kill(started, SIGTERM);
		break;
	}
	int code = gloo_reap(pids);

	forget_folder();
	return static_cast<int>(pids.size()) < ranks ? 3 : code;
}

int start_threads(int, const tutti_config *, int (*)(tutti_comm *, const void *), const void *)
{
	fprintf(stderr, "%s: Gloo's ranks are processes here: no -t, no -g.\n",
		program_invocation_short_name);
	return 2;
}
