/* Gloo as the library that is measured, over TCP on loopback: blocking calls of processes. C++,
 * because that is Gloo's API. */
extern "C" {
#include "library.h"
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

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <sched.h>

/* This process's rank. */
static struct {
	std::shared_ptr<gloo::rendezvous::Context> context;
	int rank, size;
	uint32_t tag;              /* of the next call          */
	std::vector<char> scratch; /* for a reduce off the root */
} self;

const bool library_has_kernels = false;

/* Gloo throws. */
template <typename Body> static tutti_status gloo_attempt(Body body)
{
	try {
		body();
		return TUTTI_OK;
	} catch (const std::exception &e) {
		return tutti_set_error(TUTTI_ERR_SYSTEM, e.what());
	}
}

using Reduction = void (*)(void *, const void *, const void *, size_t);

template <typename T> static Reduction gloo_reduction_of(tutti_op op)
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

/* By tutti.h's order of types; nullptr: Gloo has no such numbers or operation. */
static Reduction gloo_reduction(tutti_dtype dtype, tutti_op op)
{
	static Reduction (*const types[DTYPES])(tutti_op) = {
		gloo_reduction_of<float>,
		gloo_reduction_of<double>,
		gloo_reduction_of<gloo::float16>,
		nullptr,
		nullptr,
		nullptr,
		gloo_reduction_of<int8_t>,
		gloo_reduction_of<uint8_t>,
		gloo_reduction_of<int16_t>,
		gloo_reduction_of<uint16_t>,
		gloo_reduction_of<int32_t>,
		gloo_reduction_of<uint32_t>,
		gloo_reduction_of<int64_t>,
		gloo_reduction_of<uint64_t>,
	};

	return types[dtype] ? types[dtype](op) : nullptr;
}

const char *library_name(void)
{
	static char name[128];

	snprintf(name, sizeof name, "Gloo %d.%d.%d%s", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR,
		 GLOO_VERSION_PATCH, GLOO_PACKAGE);
	return name;
}

const char *library_refuses_ranks(bool, bool are_threads, int *code)
{
	*code = 2;
	return are_threads ? "Gloo's ranks are processes here: no -t, no -g" : nullptr;
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
template <typename Body> static void gloo_with_type(size_t bytes, Body body)
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

template <typename T> static T *gloo_typed(const void *pointer)
{
	return static_cast<T *>(const_cast<void *>(pointer));
}

/* Its faster one, as measured with 2 to 8 ranks on 2 cores: Gloo itself always takes the ring. */
static gloo::AllreduceOptions::Algorithm gloo_algorithm(size_t bytes)
{
	return self.size > 2 && bytes <= 2 << 20 ? gloo::AllreduceOptions::Algorithm::BCUBE
						 : gloo::AllreduceOptions::Algorithm::RING;
}

template <typename T> static void gloo_all_reduce(const struct operation *o)
{
	gloo::AllreduceOptions options(self.context);

	if (o->send != o->recv)
		options.setInput(gloo_typed<T>(o->send), o->count);
	options.setOutput(gloo_typed<T>(o->recv), o->count);
	options.setReduceFunction(gloo_reduction(o->dtype, o->op));
	options.setAlgorithm(gloo_algorithm(o->count * sizeof(T)));
	options.setTag(self.tag++);
	gloo::allreduce(options);
}

/* Gloo's needs room for the result on every rank. */
template <typename T> static void gloo_reduce(const struct operation *o)
{
	gloo::ReduceOptions options(self.context);
	bool is_root = self.rank == o->root;
	size_t bytes = o->count * sizeof(T);

	if (!is_root && self.scratch.size() < bytes)
		self.scratch.resize(bytes);
	if (!is_root || o->send != o->recv)
		options.setInput(gloo_typed<T>(o->send), o->count);
	options.setOutput(gloo_typed<T>(is_root ? o->recv : self.scratch.data()), o->count);
	options.setReduceFunction(gloo_reduction(o->dtype, o->op));
	options.setRoot(o->root);
	options.setTag(self.tag++);
	gloo::reduce(options);
}

/* The input and the output of what only moves data, with the root where there is one. */
template <typename Options>
static void gloo_set(Options &options, const void *send, size_t sent, void *recv, size_t received)
{
	if (send)
		options.setInput(gloo_typed<char>(send), sent);
	if (recv)
		options.setOutput(gloo_typed<char>(recv), received);
	options.setTag(self.tag++);
}

static void gloo_scatter(const struct operation *o, size_t bytes)
{
	gloo::ScatterOptions options(self.context);
	std::vector<char *> blocks;

	for (int rank = 0; self.rank == o->root && rank < self.size; rank++)
		blocks.push_back(gloo_typed<char>(o->send) + static_cast<size_t>(rank) * bytes);
	if (self.rank == o->root)
		options.setInputs(blocks, bytes);
	options.setOutput(gloo_typed<char>(o->recv), bytes);
	options.setRoot(o->root);
	options.setTag(self.tag++);
	gloo::scatter(options);
}

/* Messages of unbound buffers. Those of a pair are in order, so one slot will do. */
static void gloo_sendrecv(const struct operation *o, size_t bytes)
{
	auto recv = self.context->createUnboundBuffer(o->recv, bytes);
	auto send = self.context->createUnboundBuffer(gloo_typed<char>(o->send), bytes);

	if (self.size == 1)
		throw std::runtime_error("Gloo has no messages of a rank to itself");
	recv->recv(collective_previous(self.rank, self.size), 0);
	send->send((self.rank + 1) % self.size, 0);
	recv->waitRecv();
	send->waitSend();
}

static void gloo_make(const struct operation *o)
{
	size_t bytes = o->count * element_bytes(o->dtype);
	size_t all = bytes * static_cast<size_t>(self.size);
	bool is_root = self.rank == o->root;

	switch (o->what) {
	case CALL_ALL_REDUCE:
		return gloo_with_type(element_bytes(o->dtype),
				      [&](auto type) { gloo_all_reduce<decltype(type)>(o); });
	case CALL_REDUCE:
		return gloo_with_type(element_bytes(o->dtype),
				      [&](auto type) { gloo_reduce<decltype(type)>(o); });
	case CALL_BROADCAST: {
		gloo::BroadcastOptions options(self.context);
		bool has_input = is_root && o->send != o->recv;

		gloo_set(options, has_input ? o->send : nullptr, bytes, o->recv, bytes);
		options.setRoot(o->root);
		return gloo::broadcast(options);
	}
	case CALL_ALL_GATHER: {
		gloo::AllgatherOptions options(self.context);
		bool in_place = o->send == gloo_typed<char>(o->recv) + self.rank * bytes;

		gloo_set(options, in_place ? nullptr : o->send, bytes, o->recv, all);
		return gloo::allgather(options);
	}
	case CALL_GATHER: {
		gloo::GatherOptions options(self.context);

		gloo_set(options, o->send, bytes, is_root ? o->recv : nullptr, all);
		options.setRoot(o->root);
		return gloo::gather(options);
	}
	case CALL_ALL_TO_ALL: {
		gloo::AlltoallOptions options(self.context);

		gloo_set(options, o->send, all, o->recv, all);
		return gloo::alltoall(options);
	}
	case CALL_SCATTER:
		return gloo_scatter(o, bytes);
	case CALL_SENDRECV:
		return gloo_sendrecv(o, bytes);
	default: // of reduce_scatter it has an older class, made for one pair of buffers
		throw std::runtime_error("Gloo has no such call");
	}
}

static void gloo_barrier()
{
	gloo::BarrierOptions options(self.context);

	options.setTag(self.tag++);
	gloo::barrier(options);
}

tutti_status library_call(const struct operation *o)
{
	if (o->what == CALL_BARRIER)
		return gloo_attempt(gloo_barrier);
	return o->count == 0 ? TUTTI_OK : gloo_attempt([&] { gloo_make(o); });
}

/* Gloo's thread shares no core with its rank: Tutti binds that when it starts ranks. */
static void gloo_unbind()
{
	cpu_set_t all;

	memset(&all, 0xff, sizeof all);
	sched_setaffinity(0, sizeof all, &all);
}

/* The ranks find each other by files in a folder. */
tutti_status library_join(tutti_comm *comm)
{
	const char *base = getenv("TMPDIR");
	std::string folder = std::string(base ? base : "/tmp") + "/gloo-perf-XXXXXX";
	char path[PATH_MAX] = "";
	std::error_code ignored;

	self.rank = tutti_rank(comm);
	self.size = tutti_size(comm);
	if (self.rank == 0 && folder.size() < sizeof path && mkdtemp(folder.data()))
		memcpy(path, folder.c_str(), folder.size());
	tutti_status status = tutti_broadcast(path, path, sizeof path, TUTTI_U8, 0, comm, nullptr);
	if (status != TUTTI_OK)
		return status;
	if (!*path)
		return tutti_set_error(TUTTI_ERR_SYSTEM, ("no folder like " + folder).c_str());
	gloo_unbind();
	status = gloo_attempt([&] {
		self.context = std::make_shared<gloo::rendezvous::Context>(self.rank, self.size);
		auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");

		if (self.size == 1)
			return;
		gloo::rendezvous::FileStore store(path);
		self.context->connectFullMesh(store, device);
		gloo_barrier();
	});
	if (self.rank == 0)
		std::filesystem::remove_all(path, ignored);
	return status;
}

void library_leave(void)
{
	self.context.reset();
}
