"""Bridges between trees and other harnesses of benchmarks; each module needs its harness and loads late."""
