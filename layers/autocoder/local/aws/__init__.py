"""An AWS in one process: moto serves the APIs, real Lambda runtime processes run the handlers.

__main__        the command: start, say where, stop with everything gone
server          composes the parts below and serves them on loopback
shims           every change made to moto, one function each
cloudformation  resource types that moto lacks
functions       what a deployed function is: code, layers, environment
processes       the pool of runtime processes; runtime_api and zygote are its two halves
invocations     Invoke as Lambda answers it, synchronous and asynchronous
event_sources   SQS queues polled into functions
events          EventBridge rules and schedules delivered to their targets
deploy          a CDK cloud assembly put into this AWS (a client: imports no moto)
"""
