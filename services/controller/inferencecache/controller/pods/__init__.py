"""What becomes of pods: servers of nodes that follow their engines, engines that are counted, told of and
said goodbye to.

Each decision is a pure function of pods as they are; what carries them out stands beside it.
"""
