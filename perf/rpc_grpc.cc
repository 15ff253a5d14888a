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
	uint64_t number;
};

void begin(uint64_t number, const void *data, size_t bytes)
{
	Call *call = new Call;
	call->number = number;
	call->reader =
		stub->PrepareUnaryCall(&call->context, method, buffer_of(data, bytes), queue.get());
	call->reader->StartCall();
	call->reader->Finish(&call->answer, &call->status, call);
}

// Whichever is over next; its answer.
std::unique_ptr<Call> next()
{
	void *tag;
	bool ok;
	if (!queue->Next(&tag, &ok))
		return nullptr;
	std::unique_ptr<Call> call(static_cast<Call *>(tag));
	if (ok && call->status.ok())
		return call;
	std::fprintf(stderr, "rpc_perf: grpc: %s\n", call->status.error_message().c_str());
	return nullptr;
}

int take_short()
{
	std::unique_ptr<Call> call = next();
	if (!call)
		return -1;
	std::vector<uint8_t> answer = bytes_of(call->answer);
	answer.resize(RPC_PERF_SHORT);
	return rpc_perf_differs("grpc", answer.data(), call->number);
}

int short_calls(int calls, int in_flight)
{
	uint8_t out[RPC_PERF_SHORT];
	for (int i = 0; i < calls; i++) {
		if (i >= in_flight && take_short())
			return -1;
		rpc_perf_fill(out, static_cast<uint64_t>(i));
		begin(static_cast<uint64_t>(i), out, sizeof out);
	}
	for (int i = 0; i < in_flight && i < calls; i++)
		if (take_short())
			return -1;
	return 0;
}

int long_calls(int calls, const uint8_t *data, size_t bytes)
{
	for (int i = 0; i < calls; i++) {
		begin(0, data, bytes);
		std::unique_ptr<Call> call = next();
		if (!call)
			return -1;
		uint64_t digest = 0;
		std::vector<uint8_t> answer = bytes_of(call->answer);
		std::memcpy(&digest, answer.data(), std::min(answer.size(), sizeof digest));
		rpc_perf_check_digest("grpc", digest, data, bytes);
	}
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
	"grpc", version, listen_there, connect_there, short_calls, long_calls, nullptr, close_all};
