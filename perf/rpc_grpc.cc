// gRPC: a peer of rpc_perf, by its generic calls, whose payloads are bytes and need no protobuf.
// Calls go over a socket of the machine without TLS; answers come to a completion queue.
#include "rpc_perf.h"

#include <cstdio>
#include <cstring>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

namespace
{
const char method[] = "/tutti.Perf/Call";

std::vector<uint8_t> bytes_of(const grpc::ByteBuffer &buffer)
{
	std::vector<grpc::Slice> slices;
	std::vector<uint8_t> bytes;
	(void)buffer.Dump(&slices);
	bytes.reserve(buffer.Length());
	for (const grpc::Slice &slice : slices)
		bytes.insert(bytes.end(), slice.begin(), slice.end());
	return bytes;
}

grpc::ByteBuffer buffer_of(const void *data, size_t bytes)
{
	grpc::Slice slice(data, bytes);
	return grpc::ByteBuffer(&slice, 1);
}

// Answers a short call with its payload, and a long one with its digest.
class Reactor : public grpc::ServerGenericBidiReactor
{
      public:
	Reactor()
	{
		StartRead(&request);
	}
	void OnReadDone(bool ok) override
	{
		if (!ok) {
			Finish(grpc::Status::OK);
			return;
		}
		if (request.Length() <= RPC_PERF_SHORT) {
			answer = request;
		} else {
			std::vector<uint8_t> bytes = bytes_of(request);
			uint64_t digest = rpc_perf_digest(bytes.data(), bytes.size());
			answer = buffer_of(&digest, sizeof digest);
		}
		StartWriteAndFinish(&answer, grpc::WriteOptions(), grpc::Status::OK);
	}
	void OnDone() override
	{
		delete this;
	}

      private:
	grpc::ByteBuffer request, answer;
};

class Service : public grpc::CallbackGenericService
{
	grpc::ServerGenericBidiReactor *CreateReactor(grpc::GenericCallbackServerContext *) override
	{
		return new Reactor;
	}
};

Service service;
std::unique_ptr<grpc::Server> server;
std::shared_ptr<grpc::Channel> channel;
std::unique_ptr<grpc::GenericStub> stub;
std::unique_ptr<grpc::CompletionQueue> queue;
std::string path;

int listen_there(void *address)
{
	grpc::ServerBuilder builder;
	path = "/tmp/tutti_rpc_perf." + std::to_string(getpid());
	std::string url = "unix:" + path;
	builder.SetMaxReceiveMessageSize(-1);
	builder.SetMaxSendMessageSize(-1);
	builder.AddListeningPort(url, grpc::InsecureServerCredentials());
	builder.RegisterCallbackGenericService(&service);
	server = builder.BuildAndStart();
	std::snprintf(static_cast<char *>(address), RPC_PERF_ADDRESS, "%s", url.c_str());
	if (!server)
		std::fprintf(stderr, "rpc_perf: grpc: no server at %s\n", url.c_str());
	return server ? 0 : -1;
}

int connect_there(const void *address)
{
	grpc::ChannelArguments arguments;
	arguments.SetMaxReceiveMessageSize(-1);
	arguments.SetMaxSendMessageSize(-1);
	channel = grpc::CreateCustomChannel(static_cast<const char *>(address),
					    grpc::InsecureChannelCredentials(), arguments);
	stub = std::make_unique<grpc::GenericStub>(channel);
	queue = std::make_unique<grpc::CompletionQueue>();
	return 0;
}

struct Call {
	grpc::ClientContext context;
	std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
	grpc::ByteBuffer answer;
	grpc::Status status;
	int slot;
};

// Of the slots: those that are over.
std::unique_ptr<Call> done[RPC_PERF_IN_FLIGHT];

int begin(int slot, const void *data, size_t bytes)
{
	Call *call = new Call;
	call->slot = slot;
	call->reader =
		stub->PrepareUnaryCall(&call->context, method, buffer_of(data, bytes), queue.get());
	call->reader->StartCall();
	call->reader->Finish(&call->answer, &call->status, call);
	return 0;
}

// Whichever is over next.
int take_next()
{
	void *tag;
	bool ok;
	if (!queue->Next(&tag, &ok))
		return -1;
	Call *call = static_cast<Call *>(tag);
	done[call->slot].reset(call);
	if (ok && call->status.ok())
		return 0;
	std::fprintf(stderr, "rpc_perf: grpc: %s\n", call->status.error_message().c_str());
	return -1;
}

int end(int slot, void *answer)
{
	while (!done[slot])
		if (take_next())
			return -1;
	std::vector<uint8_t> bytes = bytes_of(done[slot]->answer);
	bytes.resize(RPC_PERF_SHORT);
	std::memcpy(answer, bytes.data(), bytes.size());
	done[slot].reset();
	return 0;
}

void close_all()
{
	stub.reset();
	channel.reset();
	if (queue)
		queue->Shutdown();
	if (server)
		server->Shutdown();
	server.reset();
	if (!path.empty())
		unlink(path.c_str());
}

const char *version()
{
	static const std::string text = "gRPC " + grpc::Version();
	return text.c_str();
}
} // namespace

extern "C" const struct rpc_contender rpc_perf_grpc = {
	"grpc", version, listen_there, connect_there, nullptr,
	begin,  end,     nullptr,      close_all,     false};
